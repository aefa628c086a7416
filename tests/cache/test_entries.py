"""Cached answers as documents: what is found, what is a miss, and what is removed, on every store."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Raw
from msgspec.structs import replace

from ninelives.core.errors import StaleDocument
from ninelives.core.model.document import DOCUMENT_BYTES
from ninelives.core.model_calls import cached_answer
from ninelives.core.model_calls.cached_answer import CachedAnswer, CacheQuestion, make_question
from ninelives.core.values.token_usage import Usage
from ninelives.models import entries
from ninelives.models import report as cache_report
from ninelives.stores.encrypted.encrypted_store import EncryptedStore
from ninelives.stores.encrypted.keys import KeyRing
from tests.clocks import SteppingClock
from tests.contract.benches import Bench, make_bench

TTL = 60_000
KEYS = [b"k" * 32, b"l" * 32]


def asks(
    text: str, *, near: str = "words", scope: dict[str, str] | None = None, version: str = ""
) -> CacheQuestion:
    found = make_question("ask", near, version, scope or {}, msgspec.json.encode({"text": text}))
    assert found is not None
    return found


def gives(
    asked: CacheQuestion, value: bytes = b'"Paris"', *, at_ms: int = 1000, **known: Any
) -> CachedAnswer:
    return CachedAnswer(
        step="ask",
        answer=asked.answer,
        question=asked.exact,
        value=Raw(value),
        digest="",
        run="r1",
        at="ask[0]",
        at_ms=at_ms,
        ttl_ms=TTL,
        preview=asked.preview,
        scope=asked.scope,
        **known,
    )


def found(store: Any, asked: CacheQuestion) -> bytes | None:
    answer = entries.lookup(store, "ask", asked).answer
    return bytes(answer.value) if answer is not None else None


def test_an_answer_is_found_by_its_question_by_any_process(bench: Bench) -> None:
    asked = asks("What is the capital of France?")
    assert found(bench.store, asked) is None
    assert entries.keep(bench.store, "ask", asked, gives(asked), 1000)
    assert found(bench.reopen(), asks("what is the capital of France")) == b'"Paris"'
    for other in (
        asks("What is the capital of Spain?"),
        asks("What is the capital of France?", near="exact"),
        asks("What is the capital of France?", version="2"),
        asks("What is the capital of France?", scope={"tenant": "acme"}),
    ):
        assert found(bench.store, other) is None


def test_who_asks_word_for_word_is_known_from_who_does_not() -> None:
    asked = asks("What is it for?")
    assert cached_answer.kind_of_hit(gives(asked), asked) == "exact"
    assert cached_answer.kind_of_hit(gives(asked), asks("what is it for")) == "words"


def test_a_new_default_is_another_question_and_an_unknown_secret_is_none() -> None:
    assert make_question("ask", "exact", "", {}, b'{"q":"x","model":"a"}') != make_question(
        "ask", "exact", "", {}, b'{"q":"x","model":"b"}'
    )
    held = b'{"q":"x","key":[{"$":"secret","v":"*** (API)"}]}'
    assert make_question("ask", "exact", "", {}, held) is None
    assert cached_answer.holds_secret(b'{"a":[{"$":"secret","v":["","str","s"]}]}')
    assert not cached_answer.holds_secret(b'{"a":"secret"}')


def test_an_answer_that_is_there_stays_until_it_has_expired(bench: Bench) -> None:
    asked = asks("What is the capital of France?")
    assert entries.keep(bench.store, "ask", asked, gives(asked, b'"one"'), 1000)
    assert not entries.keep(bench.store, "ask", asked, gives(asked, b'"two"', at_ms=2000), 2000)
    assert found(bench.store, asked) == b'"one"'
    late = 1000 + TTL
    assert entries.keep(bench.store, "ask", asked, gives(asked, b'"two"', at_ms=late), late)
    assert found(bench.store, asked) == b'"two"'


def test_of_two_workers_that_keep_an_answer_at_once_one_does(bench: Bench) -> None:
    asked, kept = asks("What is the capital of France?"), []
    begin = threading.Barrier(2)

    def keep(value: bytes) -> None:
        begin.wait()
        if entries.keep(bench.store, "ask", asked, gives(asked, value), 1000):
            kept.append(value)

    threads = [threading.Thread(target=keep, args=(value,)) for value in (b'"one"', b'"two"')]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert [found(bench.store, asked)] == kept


def test_what_is_older_than_declared_then_or_now_or_from_the_future_is_over() -> None:
    answer = gives(asks("What is it for?"))
    assert not cached_answer.is_over(answer, 10 * TTL, 1000 + TTL - 1)
    assert cached_answer.is_over(answer, 10 * TTL, 1000 + TTL)
    assert cached_answer.is_over(answer, 5, 1005)
    ahead = replace(answer, at_ms=cached_answer.AHEAD_MS + 5_000)
    assert cached_answer.is_over(ahead, TTL, 4_999)
    assert not cached_answer.is_over(ahead, TTL, 5_000)


def test_a_poisoned_answer_is_a_miss_and_is_replaced(bench: Bench) -> None:
    asked, other = asks("What is the capital of France?"), asks("What is the capital of Spain?")
    good = cached_answer.sealed(gives(asked))
    name = cached_answer.name_of("ask", asked.answer)
    for poison in (
        b"{}",
        b"7",
        msgspec.json.encode(replace(good, value=Raw(b'"Rome"'))),
        msgspec.json.encode(replace(good, taint=("web",))),
        msgspec.json.encode(replace(good, ttl_ms=10**12)),
        msgspec.json.encode(cached_answer.sealed(gives(other))),
        msgspec.json.encode(cached_answer.sealed(replace(gives(asked), step="other"))),
        msgspec.json.encode(cached_answer.sealed(replace(gives(asked), scope={"tenant": "eve"}))),
        msgspec.json.encode(cached_answer.sealed(replace(gives(asked), usage=Usage(2**62, 2**62)))),
        msgspec.json.encode(cached_answer.sealed(replace(gives(asked), usage=Usage(5, -7)))),
        msgspec.json.encode(cached_answer.sealed(replace(gives(asked), taint=("No label",)))),
    ):
        version = entries.lookup(bench.store, "ask", asked).version
        bench.store.write_document(name, poison, version=version)
        assert found(bench.store, asked) is None
        assert entries.keep(bench.store, "ask", asked, gives(asked), 1000)
        assert found(bench.store, asked) == b'"Paris"'


def test_an_answer_larger_than_a_document_is_not_kept(bench: Bench) -> None:
    asked = asks("What is the capital of France?")
    large = msgspec.json.encode("x" * DOCUMENT_BYTES)
    assert not entries.keep(bench.store, "ask", asked, gives(asked, large), 1000)
    assert bench.store.read_documents() == []


def test_cleaning_removes_what_is_over_or_unusable_and_clearing_what_is_named(bench: Bench) -> None:
    bench.store.write_document("store/other", b"1", version=0)
    asked = [asks(f"What is {number} for?", scope={"tenant": "ab"[number % 2]}) for number in range(4)]
    for number, one in enumerate(asked):
        entries.keep(bench.store, "ask", one, gives(one, at_ms=1000 * number), 1000 * number)
    bench.store.write_document(cached_answer.name_of("ask", "0" * 40), b"{}", version=0)
    assert entries.clean(bench.store, 1000 + TTL) == 3
    assert [found(bench.store, one) is not None for one in asked] == [False, False, True, True]
    assert entries.clear(bench.store, step="asked") == 0
    assert entries.clear(bench.store, labels={"tenant": "b"}) == 1
    assert [found(bench.store, one) is not None for one in asked] == [False, False, True, False]
    assert entries.clear(bench.store, answer=asked[2].answer[:12]) == 1
    assert [one.name for one in bench.store.read_documents()] == ["store/other"]


def test_an_answer_that_changes_while_it_is_removed_stays(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = asks("What is the capital of France?")
    entries.keep(bench.store, "ask", asked, gives(asked), 1000)
    write = bench.store.write_document

    def changed_before(name: str, body: bytes | None, *, version: int) -> Any:
        if body is None:
            raise StaleDocument("changed meanwhile")
        return write(name, body, version=version)

    monkeypatch.setattr(bench.store, "write_document", changed_before, raising=False)
    assert entries.clear(bench.store, step="ask") == 0
    assert found(bench.store, asked) == b'"Paris"'


def test_the_report_counts_what_is_kept(bench: Bench) -> None:
    asked = asks("What is the capital of France?")
    now = bench.store.read_clock()
    entries.keep(bench.store, "ask", asked, gives(asked, at_ms=now, usage=Usage(30, 12, "m")), now)
    old = asks("What is the capital of Spain?")
    entries.keep(bench.store, "ask", old, gives(old, at_ms=now - TTL), now)
    bench.store.write_document(cached_answer.name_of("ask", "0" * 40), b"{}", version=0)
    (one,) = cache_report.report(bench.store).steps
    assert (one.step, one.usable, one.expired, one.unusable, one.tokens) == ("ask", 1, 1, 1, 42)
    assert cache_report.report(bench.store, "asked").steps == ()


def test_steps_with_long_names_have_caches_of_their_own() -> None:
    names = {cached_answer.name_of("x" * 250 + end, "0" * 40) for end in ("a", "b")}
    assert len(names) == 2
    assert all(len(one) <= 255 for one in names)


def test_an_encrypted_store_seals_answers_and_their_names_say_nothing(tmp_path: Path) -> None:
    bench = make_bench("sqlite", SteppingClock(), tmp_path)
    try:
        store = EncryptedStore(bench.store, KeyRing(KEYS[:1]))
        arguments = msgspec.json.encode({"text": "What is the capital of France?"})
        asked = make_question("ask", "words", "", {}, arguments, entries.secret_of(store))
        guessed = make_question("ask", "words", "", {}, arguments)
        assert asked is not None
        assert guessed is not None
        assert entries.keep(store, "ask", asked, gives(asked), 1000)
        assert found(store, asked) == b'"Paris"'
        (raw,) = bench.store.read_documents("cache/")
        assert b"Paris" not in raw.body
        assert b"France" not in raw.body
        assert guessed.answer not in raw.name
        assert guessed.exact.encode() not in raw.body
        # Without the key nothing can be said of it, and it is not thrown away for that.
        stranger = EncryptedStore(bench.store, KeyRing(KEYS[1:]))
        assert entries.clean(stranger, 10 * TTL) == 0
        assert [one.is_locked for one in entries.answers(stranger)] == [True]
        assert entries.clean(store, 10 * TTL) == 1
    finally:
        bench.close()
