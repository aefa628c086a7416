"""The demo and the tutorial on each server: the same, by another URL."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from ninelives.chaos.trial.scratch_store import urls
from ninelives.demo.board import Watcher
from ninelives.demo.command import clear
from tests.servers import valkey
from tests.servers.postgres import change, free_port

ROOT = Path(__file__).parents[2]
SECONDS = 240
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.fixture(params=["postgres_url", "redis_url"])
def url(request: pytest.FixtureRequest) -> str:
    """Return the URL of a deployment on each server."""
    found: str = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def left_behind() -> Iterator[list[str]]:
    """Yield a list of commands that the demo told; what they look at is removed."""
    told: list[str] = []
    yield told
    for mark in re.findall(r"=([a-z0-9_-]*demo_[0-9a-f]+)_1", "\n".join(told)):
        for number in (0, 1):
            change(f'DROP SCHEMA IF EXISTS "{mark}_{number}" CASCADE')
            valkey.wipe(f"{mark}_{number}")


def test_the_demo_meets_its_targets(url: str, left_behind: list[str]) -> None:
    options = ("--store", url, "--tickets", "2", "--kills", "1", "--keep")
    done = subprocess.run(
        [sys.executable, "-m", "ninelives.demo", *options],
        capture_output=True, text=True, timeout=SECONDS, check=False,
    )  # fmt: skip
    left_behind.append(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^duplicate rate .* met ", done.stdout, re.MULTILINE)
    (look,) = re.findall(r"list them with: ninelives (ps .*)$", done.stdout, re.MULTILINE)
    place = look.split("--store ")[1].strip("'")
    asked = [sys.executable, "-m", "ninelives", "ps", "--all", "--json", "--store", place]
    listed = subprocess.run(asked, capture_output=True, text=True, timeout=SECONDS, check=True)
    assert {run["status"] for run in json.loads(listed.stdout)} == {"completed"}


def test_the_demo_leaves_nothing_on_the_server(url: str) -> None:
    part = url.rpartition("=")[2]
    options = ("--store", url, "--tickets", "1", "--kills", "1", "--json")
    done = subprocess.run(
        [sys.executable, "-m", "ninelives.demo", *options],
        capture_output=True, text=True, timeout=SECONDS, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    if url.startswith("postgres"):
        with psycopg.connect(url.partition("?")[0]) as connection:
            asked = "SELECT nspname FROM pg_namespace WHERE starts_with(nspname, %s)"
            assert connection.execute(asked, (part,)).fetchall() == []
    else:
        assert list(valkey.behind().scan_iter(match=f"{{{part}*")) == []


def test_what_the_demo_may_not_remove_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    watcher = Watcher()
    monkeypatch.setattr(watcher, "say", told.append)
    clear(_stages(f"redis://127.0.0.1:{free_port()}/0?prefix=mine"), watcher)
    (line,) = told
    assert re.search(r"mine_demo_\w+_0 and mine_demo_\w+_1 from the server: Redis: ", line)


def test_the_tutorial_runs_and_runs_again(url: str, tmp_path: Path) -> None:
    content = BLOCK.findall((ROOT / "docs/tutorial.md").read_text(encoding="utf-8"))[0]
    for _ in range(2):
        ran = subprocess.run(
            [sys.executable, "-c", content], cwd=tmp_path, env={**os.environ, "NINELIVES_STORE": url},
            capture_output=True, text=True, timeout=SECONDS, check=False,
        )  # fmt: skip
        assert ran.returncode == 0, ran.stderr
    asked = [sys.executable, "-m", "ninelives", "ps", "--all", "--json", "--store", url]
    listed = subprocess.run(asked, capture_output=True, text=True, timeout=SECONDS, check=True)
    assert json.loads(listed.stdout)


def test_the_demo_keeps_to_places_of_its_own() -> None:
    first, second = _stages("postgresql://ann:secret@db:5432/prod?sslmode=require&schema=live")
    assert first != second
    assert all("schema=live_demo_" in url for url in (first, second))
    assert all("sslmode=require" in url for url in (first, second))
    refused = subprocess.run(
        [sys.executable, "-m", "ninelives.demo", "--store", "sqlite:///x.db"],
        capture_output=True, text=True, timeout=SECONDS, check=False,
    )  # fmt: skip
    assert refused.returncode == 1
    assert "names no server" in refused.stdout


def _stages(url: str) -> list[str]:
    name = urls(url, "demo")
    return [name(number, Path()) for number in (0, 1)]
