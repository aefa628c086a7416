"""What a cache by meaning knows, as documents: several processes, expiry, damage, encrypted stores."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ninelives.core.errors import UsageError
from ninelives.core.model_calls.meaning.record import Comparison
from ninelives.models import meaning_notes
from ninelives.models.meaning_notes import MeaningNotes
from ninelives.stores.encrypted.encrypted_store import EncryptedStore
from ninelives.stores.encrypted.keys import KeyRing
from tests.clocks import SteppingClock
from tests.contract.benches import Bench, make_bench

PREFIX = "cache/ask/meaning/0f"
TTL = 60_000


def right(entry: str, band: int = 1) -> Comparison:
    return Comparison(entry, 0.9, band, True)


def test_what_one_process_notes_another_one_reads(bench: Bench) -> None:
    mine, yours = (MeaningNotes(bench.store, PREFIX) for _ in range(2))
    assert mine.add_question("a1", "How do I reset my password?", [3.0, 4.0], TTL)
    yours.refresh()
    (near,) = yours.index.nearest([3.0, 4.1])
    assert (near.entry, near.text) == ("a1", "How do I reset my password?")
    assert near.similarity > 0.99
    assert yours.add_comparison(right("a1"))
    mine.refresh()
    mine.refresh()
    assert mine.record.bound(1).compared == 1 == yours.record.bound(1).compared


def test_another_cache_knows_nothing_of_it(bench: Bench) -> None:
    MeaningNotes(bench.store, PREFIX).add_question("a1", "How do I reset it?", [1.0], TTL)
    other = MeaningNotes(bench.store, PREFIX + "0")
    other.refresh()
    assert len(other.index) == 0


def test_an_own_note_hides_nothing_that_was_there_before(bench: Bench) -> None:
    MeaningNotes(bench.store, PREFIX).add_question("a1", "How do I reset it?", [1.0, 0.0], TTL)
    bench.clock.advance(meaning_notes.OVERLAP_MS * 2)
    late = MeaningNotes(bench.store, PREFIX)
    late.add_comparison(right("a2"))
    late.add_question("a2", "How do I lose it?", [0.0, 1.0], TTL * 9)
    bench.clock.advance(-meaning_notes.OVERLAP_MS * 2)
    late.refresh()
    assert len(late.index) == 2


def test_a_clock_that_is_ahead_hides_nothing_that_is_written_later(bench: Bench) -> None:
    reader = MeaningNotes(bench.store, PREFIX)
    bench.clock.advance(3_600_000)
    MeaningNotes(bench.store, PREFIX).add_comparison(right("ahead"))
    bench.clock.advance(-3_600_000)
    reader.refresh()
    MeaningNotes(bench.store, PREFIX).add_comparison(right("now"))
    reader.refresh()
    assert reader.record.bound(1).compared == 2


def test_a_reader_lists_only_what_is_new(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    reader, listed = MeaningNotes(bench.store, PREFIX), list[Any]()
    for at in range(5):
        MeaningNotes(bench.store, PREFIX).add_comparison(right(f"a{at}"))
    reader.refresh()
    bench.clock.advance(meaning_notes.OVERLAP_MS * 2)
    MeaningNotes(bench.store, PREFIX).add_comparison(right("new"))
    reader.refresh()
    read = bench.store.read_documents

    def counted(*args: Any, **kwargs: Any) -> Any:
        listed.append(read(*args, **kwargs))
        return listed[-1]

    monkeypatch.setattr(bench.store, "read_documents", counted)
    reader.refresh()
    assert sum(map(len, listed)) == 1
    assert reader.record.bound(1).compared == 6


def test_a_question_that_has_expired_is_no_longer_near(bench: Bench) -> None:
    notes = MeaningNotes(bench.store, PREFIX)
    notes.add_question("a1", "How do I reset it?", [1.0], TTL)
    notes.add_comparison(right("a1"))
    bench.clock.advance(TTL)
    notes.refresh()
    assert notes.index.nearest([1.0]) == []
    assert notes.record.bound(1).compared == 1
    fresh = MeaningNotes(bench.store, PREFIX)
    fresh.refresh()
    assert len(fresh.index) == 0


def test_what_is_damaged_or_of_another_version_is_passed_over(bench: Bench) -> None:
    bodies = (b"{}", b"[1]", b'{"question":["a","b","no base64",9999999999999]}', b'{"question":["a","b"]}')
    for at, body in enumerate(bodies):
        bench.store.write_document(f"{PREFIX}/{at:013d}-x", body, version=0)
    bench.store.write_document(f"{PREFIX}/nonsense", b'{"comparison":["a",0.9,1,true]}', version=0)
    notes = MeaningNotes(bench.store, PREFIX)
    notes.add_question("a1", "How do I reset it?", [1.0, 2.0], TTL)
    notes.add_question("a2", "Of another width", [1.0], TTL)
    reader = MeaningNotes(bench.store, PREFIX)
    reader.refresh()
    assert [near.entry for near in reader.index.nearest([1.0, 2.0])] == ["a1"]


def test_a_vector_that_is_none_is_refused_before_it_is_kept(bench: Bench) -> None:
    notes = MeaningNotes(bench.store, PREFIX)
    with pytest.raises(UsageError, match="embed"):
        notes.add_question("a1", "How do I reset it?", [], TTL)
    assert bench.store.read_documents(PREFIX) == []


def test_a_question_too_long_for_a_document_is_not_kept(bench: Bench) -> None:
    notes = MeaningNotes(bench.store, PREFIX)
    assert not notes.add_question("a1", "why " * 20_000, [1.0], TTL)
    assert len(notes.index) == 0


def test_cleaning_removes_what_no_longer_counts(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meaning_notes, "WINDOW", 3)
    notes = MeaningNotes(bench.store, PREFIX)
    notes.add_question("over", "How do I reset it?", [1.0], TTL)
    for at in range(5):
        bench.clock.advance(1)
        notes.add_comparison(right(f"a{at}"))
    notes.add_question("here", "How do I lose it?", [1.0], TTL * 5)
    bench.store.write_document(f"{PREFIX}/0-damaged", b"[]", version=0)
    bench.clock.advance(TTL)
    assert meaning_notes.clean(bench.store, PREFIX, bench.clock.now_ms()) == 1 + 2 + 1
    fresh = MeaningNotes(bench.store, PREFIX)
    fresh.refresh()
    assert (len(fresh.index), fresh.record.bound(1).compared) == (1, 3)
    assert meaning_notes.clean(bench.store, PREFIX, bench.clock.now_ms()) == 0


def test_an_encrypted_store_shows_neither_questions_nor_vectors(tmp_path: Path) -> None:
    bench = make_bench("sqlite", SteppingClock(), tmp_path)
    try:
        store = EncryptedStore(bench.store, KeyRing([b"k" * 32]))
        MeaningNotes(store, PREFIX).add_question("a1", "Where is the treasure?", [1.0], TTL)
        assert not any(b"treasure" in one.body for one in bench.store.read_documents(PREFIX))
        reader, stranger = MeaningNotes(store, PREFIX), EncryptedStore(bench.store, KeyRing([b"l" * 32]))
        reader.refresh()
        assert len(reader.index) == 1
        lost = MeaningNotes(stranger, PREFIX)
        lost.refresh()
        assert len(lost.index) == 0
        assert meaning_notes.clean(stranger, PREFIX, bench.clock.now_ms() + 2 * TTL) == 0
    finally:
        bench.close()
