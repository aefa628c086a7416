"""`ninelives cache` as operators type it, and what copies, moves and verifications make of cached answers."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ninelives.cli.app import app
from ninelives.core.errors import UsageError
from ninelives.models import entries
from ninelives.stores.open import open_store
from tests.cache import test_hits, test_meaning
from tests.cache.test_hits import asked, asks, lives
from tests.cache.test_meaning import PARAPHRASES, asks_each

nobody_was_asked = test_hits.nobody_was_asked
QUESTION, OTHERWISE = "What is it?", "what is it"


@pytest.fixture
def url(tmp_path: Path) -> str:
    """Return a store in which one run was answered from the cache."""
    made = f"sqlite:///{tmp_path / 'runs.db'}"
    with closing(open_store(made)) as store:
        lives(store, asks, "c_words", QUESTION, id="one")
        lives(store, asks, "c_words", OTHERWISE, id="two")
        lives(store, asks, "c_tenant", QUESTION, id="three", labels={"tenant": "acme"})
    return made


def typed(*words: str, store: str) -> str:
    """Type a command; return what it prints."""
    done = CliRunner().invoke(app, [*words, "--store", store], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def kept(url: str) -> list[str]:
    with closing(open_store(url)) as store:
        return sorted(one.answer.step for one in entries.answers(store) if one.answer is not None)


def test_report_says_what_is_kept_and_used(url: str) -> None:
    found = json.loads(typed("cache", "report", "--json", store=url))
    assert [(one["step"], one["usable"], one["tokens"]) for one in found["steps"]] == [
        ("c_tenant", 1, 42),
        ("c_words", 1, 42),
    ]
    (of_agent,) = found["agents"]
    assert of_agent == {"agent": "c_asks", "exact": 0, "words": 1, "meaning": 0, "missed": 2, "tokens": 42}
    text = typed("cache", "report", "--step", "c_words", store=url)
    assert "c_words" in text
    assert "c_tenant" not in text


def test_clear_removes_what_is_named_and_runs_keep_what_they_have(url: str) -> None:
    refused = CliRunner().invoke(app, ["cache", "clear", "--store", url])
    assert isinstance(refused.exception, UsageError), refused
    assert typed("cache", "clear", "--label", "tenant=other", store=url) == "removed 0 answers\n"
    assert json.loads(typed("cache", "clear", "--step", "c_words", "--json", store=url)) == {"removed": 1}
    assert kept(url) == ["c_tenant"]
    assert "from the cache (words): answer " in typed("show", "two", store=url)
    assert typed("cache", "clear", "--label", "tenant=acme", store=url) == "removed 1 answer\n"
    assert typed("cache", "clear", "--all", store=url) == "removed 0 answers\n"
    assert "no answers are kept" in typed("cache", "report", store=url)


def test_retain_removes_what_has_expired(url: str) -> None:
    assert json.loads(typed("store", "retain", "--json", store=url))["answers"] == 0
    with closing(open_store(url)) as store:
        for one in list(entries.answers(store)):
            store.write_document(one.name, b"{}", version=one.version)
    assert "2 cached answers" in typed("store", "retain", store=url)
    assert kept(url) == []


def test_comparisons_are_reported_kept_in_bounds_and_cleared(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'runs.db'}"
    with closing(open_store(url)) as store:
        asks_each(store, "m_ask", PARAPHRASES[:6])
        assert test_meaning.notes(store)
    (of_step,) = json.loads(typed("cache", "report", "--json", store=url))["steps"]
    assert (of_step["compared"], of_step["disagreed"]) == (5, 0)
    assert 0.3 < of_step["at_most"] < 0.6
    assert "m_ask" in typed("cache", "report", store=url)
    typed("store", "retain", store=url)
    typed("cache", "clear", "--step", "m_ask", store=url)
    with closing(open_store(url)) as store:
        assert store.read_documents("cache/") == []


def test_a_backup_has_the_cache_and_verifying_and_auditing_read_it(url: str, tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"
    typed("store", "backup", str(copy), store=url)
    restored = f"sqlite:///{tmp_path / 'restored.db'}"
    typed("store", "restore", str(copy), store=restored)
    for one in (url, restored):
        typed("store", "verify", store=one)
        typed("store", "audit", store=one)
        assert kept(one) == ["c_tenant", "c_words"]
    with closing(open_store(restored)) as store:
        lives(store, asks, "c_words", OTHERWISE, id="three more")
    assert len(asked) == 2


def test_a_run_that_moves_takes_its_answer_along_and_not_the_cache(url: str, tmp_path: Path) -> None:
    other, file = f"sqlite:///{tmp_path / 'other.db'}", tmp_path / "runs.export"
    with closing(open_store(other)):
        pass
    typed("export", "two", "--to", str(file), store=url)
    typed("import", str(file), store=other)
    assert kept(other) == []
    shown: Any = json.loads(typed("show", "two", "--json", store=other))
    assert next(one["answered"] for one in shown["history"] if one["answered"]).startswith("from the cache")
    with closing(open_store(other)) as store:
        lives(store, asks, "c_words", QUESTION, id="four")
    assert len(asked) == 3


def test_a_copy_in_a_bucket_has_the_runs_and_what_lies_beside_the_cache(url: str, tmp_path: Path) -> None:
    bucket, restored = f"file://{tmp_path / 'bucket'}", f"sqlite:///{tmp_path / 'restored.db'}"
    with closing(open_store(url)) as store:
        for name in ("before", "zebra"):
            store.write_document(name, b"1", version=0)
    typed("store", "backup", bucket, store=url)
    assert CliRunner().invoke(app, ["store", "restore", bucket, "--to", restored]).exit_code == 0
    with closing(open_store(restored)) as store:
        assert {"before", "zebra"} <= {one.name for one in store.read_documents()}
    assert kept(restored) == []
    assert "from the cache" in typed("show", "two", store=restored)
