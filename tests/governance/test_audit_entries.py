"""Entries of the audit log: each once, on every store, with writers that race and that die anywhere."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ninelives.core.errors import Corrupt, NotSerializable
from ninelives.governance.audit_log import entries, merkle, tiles
from ninelives.stores.memory import MemoryStore
from tests.clocks import SteppingClock
from tests.contract.benches import STORES, Bench, make_bench


@pytest.fixture(params=STORES)
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    made = make_bench(request.param, SteppingClock(), tmp_path)
    yield made
    made.close()


def _ids(store: Any) -> list[str]:
    return [
        msgspec.json.decode(one)["id"] for tile in tiles.tiles_from(store, 0) for one in tile.tile.entries
    ]


def _tree(store: Any) -> list[bytes]:
    """Return the leaves, after checking that each tile continues the one before."""
    leaves: list[bytes] = []
    frontier: list[bytes] = []
    for stored in tiles.tiles_from(store, 0):
        assert stored.tile.first == len(leaves)
        for entry in stored.tile.entries:
            frontier = merkle.grown(frontier, len(leaves), merkle.leaf_hash(bytes(entry)))
            leaves.append(merkle.leaf_hash(bytes(entry)))
        assert stored.tile.hashes == frontier
    return leaves


def test_nothing_is_logged_until_it_is_switched_on(bench: Bench) -> None:
    assert entries.append(bench.store, "halt", id="h1", by="ada") is None
    assert bench.store.read_documents(tiles.PREFIX) == []
    assert entries.switch(bench.store, on=True, by="ada")
    assert not entries.switch(bench.store, on=True, by="eve")
    assert entries.append(bench.store, "halt", id="h1", by="ada") == 1
    assert entries.append(bench.reopen(), "halt", id="h1", by="eve") == 1
    assert entries.switch(bench.store, on=False, by="ada")
    assert entries.append(bench.store, "halt", id="h2") is None
    assert _ids(bench.store) == ["switch/0", "h1", "switch/1"]
    assert len(_tree(bench.store)) == 3


def test_many_entries_fill_tiles_and_none_is_lost_or_twice(bench: Bench) -> None:
    entries.switch(bench.store, on=True)
    stores, wanted = [bench.reopen() for _ in range(4)], [f"e{n}" for n in range(30)]
    numbers: dict[str, set[int | None]] = {one: set() for one in wanted}

    def write(at: int) -> None:
        for one in wanted[at:] + wanted[:at]:
            numbers[one].add(entries.append(stores[at], "x", id=one, of="a" * 3000))

    threads = [threading.Thread(target=write, args=(at,)) for at in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert sorted(_ids(bench.store)) == sorted(["switch/0", *wanted])
    assert len(_tree(bench.store)) == 31
    assert all(len(found) == 1 for found in numbers.values())  # all writers got the same number
    assert len(list(tiles.tiles_from(bench.store, 0))) > 2
    assert bench.store.read_documents(entries.OPEN) == []


class _Dying:
    """A store that dies before or after its n-th write."""

    def __init__(self, store: Any, at: int, *, is_done: bool) -> None:
        self._store, self._left, self._is_done = store, at, is_done

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def write_document(self, *given: Any, **named: Any) -> Any:
        self._left -= 1
        if self._left < 0 and not self._is_done:
            raise KeyboardInterrupt
        made = self._store.write_document(*given, **named)
        if self._left < 0:
            raise KeyboardInterrupt
        return made


@pytest.mark.parametrize("is_done", [False, True])
def test_an_entry_is_there_once_wherever_its_writer_died(
    *, is_done: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiles, "TILE_ENTRIES", 1)  # each entry begins a tile
    for at in range(12):
        store = MemoryStore(SteppingClock())
        entries.switch(store, on=True)
        try:
            entries.append(_Dying(store, at, is_done=is_done), "x", id="e1", of=1)
            was_killed = False
        except KeyboardInterrupt:
            was_killed = True
        entries.append(store, "x", id="e2")
        entries.finish_open(store)
        assert _ids(store).count("e1") == (0 if (at, is_done) == (0, False) else 1)
        entries.append(store, "x", id="e1", of="another attempt")
        assert sorted(_ids(store)) == ["e1", "e2", "switch/0"]
        assert store.read_documents(entries.OPEN) == []
        _tree(store)
        if not was_killed:
            return
    pytest.fail("it never came to its end")


@pytest.mark.parametrize("is_done", [False, True])
def test_switching_on_is_finished_by_the_next_attempt(*, is_done: bool) -> None:
    for at in range(12):
        store = MemoryStore(SteppingClock())
        try:
            entries.switch(_Dying(store, at, is_done=is_done), on=True)
        except KeyboardInterrupt:
            entries.switch(store, on=True)
        assert entries.is_on(store)
        assert _ids(store) == ["switch/0"]


def test_what_cannot_be_kept_is_refused() -> None:
    store = MemoryStore(SteppingClock())
    entries.switch(store, on=True)
    for fact in (object(), "x" * tiles.ENTRY_BYTES):
        with pytest.raises(NotSerializable):
            entries.append(store, "x", id="e1", of=fact)
    assert _ids(store) == ["switch/0"]
    found = store.read_documents(tiles.TILE)[0]
    store.write_document(found.name, b'{"first":0,"entries":[],"frontier":["aa"]}', version=found.version)
    with pytest.raises(Corrupt, match="is no tile"):
        entries.append(store, "x", id="e1")


def test_a_wrong_note_of_the_last_tile_costs_only_time() -> None:
    store = MemoryStore(SteppingClock())
    entries.switch(store, on=True)
    for n in range(200):
        entries.append(store, "x", id=f"e{n}")
    for supposed in (b"0", b"1", b"777", b"-4", b'"x"', b"99999999999"):
        known = store.read_documents(tiles.LAST)[0]
        store.write_document(tiles.LAST, supposed, version=known.version)
        assert tiles.last_tile(store).number == 3
    assert len(_tree(store)) == 201


def test_roots_and_proofs_are_those_of_rfc_6962() -> None:
    given = [b"", b"\0", b"\x10", b" !", b"01", b"@ABC", b"PQRSTUVW", b"`abcdefghijklmno"]
    leaves = [merkle.leaf_hash(one) for one in given]
    assert sha256().digest() == merkle.EMPTY
    frontier: list[bytes] = []
    roots = []
    for size, leaf in enumerate(leaves):
        frontier = merkle.grown(frontier, size, leaf)
        roots.append(merkle.root_of(frontier).hex())
    assert roots[0] == "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d"
    assert roots[1] == "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125"
    assert roots[6] == "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c"
    assert roots[7] == "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328"
    path = [one.hex()[:8] for one in merkle.inclusion_proof(leaves, 5)]
    assert path == ["bc1a0643", "ca854ea1", "d37ee418"]
    assert [one.hex()[:8] for one in merkle.consistency_proof(leaves, 6)] == [
        "0ebc5d34",
        "ca854ea1",
        "d37ee418",
    ]
