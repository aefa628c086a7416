"""Documents: small facts of operators, written on the condition that they are as they were read."""

from __future__ import annotations

import threading

import pytest

from ninelives.core.errors import BadName, NotSerializable, StaleDocument, UsageError
from ninelives.core.model.document import DOCUMENT_BYTES, Document
from tests.contract.benches import Bench


def test_a_document_is_read_as_it_was_written_by_any_process(bench: Bench) -> None:
    bench.clock.advance(7)
    made = bench.store.write_document("audit/cursor", b'{"run": 7}', version=0)
    wanted = Document(name="audit/cursor", version=1, body=b'{"run": 7}', changed_ms=bench.clock.now_ms())
    assert made == wanted
    assert bench.reopen().read_documents() == [wanted]
    bench.clock.advance(1)
    after = bench.store.write_document("audit/cursor", b"8", version=1)
    assert after is not None
    assert (after.version, after.changed_ms) == (2, bench.clock.now_ms())
    assert bench.reopen().read_documents("audit/") == [after]


@pytest.mark.parametrize("version", [0, 2, 9])
def test_a_write_by_another_version_changes_nothing(bench: Bench, version: int) -> None:
    bench.store.write_document("a", b"1", version=0)
    for body in (b"2", None):
        with pytest.raises(StaleDocument, match="'a' is at version 1") as caught:
            bench.store.write_document("a", body, version=version)
        assert caught.value.remedy
    with pytest.raises(StaleDocument, match="does not exist"):
        bench.store.write_document("b", b"2", version=version or 1)
    assert [(one.name, one.body) for one in bench.store.read_documents()] == [("a", b"1")]


def test_a_repeated_write_changes_nothing_more(bench: Bench) -> None:
    first = bench.store.write_document("a", b"1", version=0)
    bench.clock.advance(5)
    assert bench.store.write_document("a", b"1", version=0) == first
    assert bench.store.write_document("a", None, version=1) is None
    assert bench.store.write_document("a", None, version=1) is None
    assert bench.store.read_documents() == []
    assert bench.store.write_document("a", b"1", version=0) is not None


def test_documents_are_listed_by_name_in_pages(bench: Bench) -> None:
    names = ["a", "a/1", "a/10", "a/2", "a/ä", "a/\U0001f600", "b", "ä"]
    for name in reversed(names):
        bench.store.write_document(name, b"1", version=0)

    def found(prefix: str = "", **asked: object) -> list[str]:
        return [one.name for one in bench.store.read_documents(prefix, **asked)]  # type: ignore[arg-type]

    assert found() == names
    assert found("a/") == names[1:6]
    assert found("a/", after="a/10") == names[3:6]
    assert found("a/", after="a/10", limit=1) == ["a/2"]
    assert found("a/", after="0") == names[1:6]
    assert found("b", after="c") == found("c") == found(limit=0) == found("\0") == found(after="\ud800") == []


def test_what_no_store_can_keep_is_refused(bench: Bench) -> None:
    for name in ("", " a", "a\n", "a\0", "e\u0301", "x" * 256):
        with pytest.raises(BadName, match="document's name"):
            bench.store.write_document(name, b"1", version=0)
    for body in (b"", b"{", b'"' + b"x" * DOCUMENT_BYTES + b'"'):
        with pytest.raises(NotSerializable):
            bench.store.write_document("a", body, version=0)
    with pytest.raises(UsageError, match="negative"):
        bench.store.write_document("a", b"1", version=-1)
    assert bench.store.read_documents() == []
    assert bench.store.write_document("a", b'"' + b"x" * (DOCUMENT_BYTES - 2) + b'"', version=0) is not None


def test_of_many_writers_at_once_one_wins_each_version(bench: Bench) -> None:
    stores = [bench.reopen() for _ in range(4)]
    won: list[tuple[int, int]] = []

    def write(number: int) -> None:
        version = 0
        while version < 5:
            try:
                after = stores[number].write_document("a", b"%d" % number, version=version)
                assert after is not None
                won.append((after.version, number))
                version = after.version
            except StaleDocument:
                version = stores[number].read_documents("a")[0].version

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(version for version, _ in won) == [1, 2, 3, 4, 5]


def test_documents_outlive_pruning_and_the_store_stays_sound(bench: Bench) -> None:
    made = bench.store.write_document("a", b"1", version=0)
    bench.clock.advance(10**9)
    bench.store.prune(ended_before_ms=bench.clock.now_ms(), forget_before_ms=bench.clock.now_ms())
    assert bench.store.read_documents() == [made]
    assert bench.store.verify() == []
