"""One document of a store, read by its name."""

from __future__ import annotations

from ninelives.stores.memory import MemoryStore
from ninelives.views import documents
from tests.clocks import SteppingClock


def test_a_document_is_found_by_its_whole_name_only() -> None:
    store = MemoryStore(SteppingClock())
    store.write_document("task/ab", b"[1]", version=0)
    assert documents.find(store, "task/a") is None
    assert documents.read(store, "task/a", list[int]) == (None, 0)
    assert documents.read(store, "task/ab", list[int]) == ([1], 1)


def test_what_another_version_wrote_is_begun_again_at_its_version() -> None:
    store = MemoryStore(SteppingClock())
    store.write_document("task/ab", b'{"new": 1}', version=0)
    assert documents.read(store, "task/ab", list[int]) == (None, 1)
