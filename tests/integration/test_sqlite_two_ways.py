"""What must not be missed is found on two ways: a damaged index hides no run, no key, no signal and no item.

The check of the whole structure, which would find all of this at open, is left out here: a large store has
none.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from ninelives.core.errors import Corrupt
from ninelives.core.model.key import ReserveKey
from ninelives.stores.sqlite import SqliteStore, checks
from ninelives.stores.sqlite.files import structure
from tests.contract.makers import AGENTS, append, new_item, new_run, new_session


def made(path: Path) -> None:
    """Make a store with one of everything that must not be missed."""
    store = SqliteStore(path)
    store.register_session(new_session(lease_ms=1_000_000))
    store.create_runs([new_run("the-run")])
    (run,) = store.claim_runs("s1", 1, AGENTS).runs
    reserve = ReserveKey(key="the-key", action="pay", fingerprint=b"f", resumable=False)
    store.commit([append(run, b"x", keys=[reserve], opens=[new_item("the-item")])])
    store.send_signal("the-run", "go", b"{}", id="the-signal")
    store.close()


def hide(path: Path, root: str, text: bytes) -> None:
    """Flip a bit of every place where a text stands in the pages of one b-tree."""
    with closing(sqlite3.connect(path)) as tool:
        ((page,),) = tool.execute("SELECT rootpage FROM sqlite_schema WHERE name = ?", (root,)).fetchall()
        ((size,),) = tool.execute("PRAGMA page_size").fetchall()
    image = bytearray(path.read_bytes())
    start, end = (page - 1) * size, page * size
    at = image.index(text, start, end)
    while at >= 0:
        image[at] ^= 0x02
        at = image.find(text, start, end)
    path.write_bytes(image)


def looks_for_a_run(store: SqliteStore) -> object:
    return store.read_run("the-run")


def creates_it_again(store: SqliteStore) -> object:
    return store.create_runs([new_run("the-run")])


def looks_for_a_key(store: SqliteStore) -> object:
    return store.read_keys(["the-key"])


def sends_it_again(store: SqliteStore) -> object:
    return store.send_signal("the-run", "go", b"{}", id="the-signal")


def reads_the_journal(store: SqliteStore) -> object:
    return store.load_journal("the-run")


def reads_the_journals(store: SqliteStore) -> object:
    (found,) = store.load_journals(["the-run"])
    if isinstance(found, Exception):
        raise found
    return found


@pytest.mark.parametrize(
    ("root", "text", "act"),
    [
        ("sqlite_autoindex_runs_1", b"the-run", looks_for_a_run),
        ("sqlite_autoindex_runs_1", b"the-run", creates_it_again),
        ("keys", b"the-key", looks_for_a_key),
        ("signals_id", b"the-signal", sends_it_again),
        ("items_run", b"the-run", reads_the_journal),
        ("items_run", b"the-run", reads_the_journals),
    ],
)
def test_what_one_index_hides_the_other_finds(
    path: Path, monkeypatch: pytest.MonkeyPatch, root: str, text: bytes, act: Callable[[SqliteStore], Any]
) -> None:
    monkeypatch.setattr(structure, "require_sound", lambda *_: None)
    made(path)
    store = SqliteStore(path)
    act(store)
    store.close()
    hide(path, root, text)
    store = SqliteStore(path)
    with pytest.raises(Corrupt):
        act(store)
    store.close()


def test_a_signal_that_its_table_hides_is_missed_by_nobody(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(structure, "require_sound", lambda *_: None)
    made(path)
    with closing(sqlite3.connect(path)) as tool:
        ((page,),) = tool.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'signals'").fetchall()
        ((size,),) = tool.execute("PRAGMA page_size").fetchall()
    image = bytearray(path.read_bytes())
    cells = (page - 1) * size + 3
    assert image[cells : cells + 2] == b"\x00\x01"
    image[cells + 1] = 0  # the page says that it holds none
    path.write_bytes(image)
    store = SqliteStore(path)
    with pytest.raises(Corrupt):
        store.load_journal("the-run")
    store.close()


def test_the_structure_is_checked_when_a_store_is_opened(path: Path) -> None:
    made(path)
    hide(path, "runs_state", b"running")
    with pytest.raises(Corrupt, match="structure is damaged"):
        SqliteStore(path)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE runs SET epoch = epoch - 1",
        "UPDATE runs SET news = news + 1",
        "UPDATE runs SET length = length + 1",
        "UPDATE runs SET effect_length = 0",
        "UPDATE keys SET state = 'settled'",
        "UPDATE signals SET taken = 1",
        "UPDATE items SET state = 'answered'",
        "UPDATE sessions SET lease_ms = 1",
        "UPDATE store SET runs = 0",
        "UPDATE blobs SET put_ms = 0",
        "UPDATE waiters SET run = 'other'",
    ],
)
def test_what_a_stock_tool_changes_in_our_rows_is_found(path: Path, statement: str) -> None:
    made(path)
    store = SqliteStore(path)
    store.put_blobs([b"content" * 1000])
    store.create_runs([new_run("second")])
    assert store.verify() == []
    store.close()
    with closing(sqlite3.connect(path, isolation_level=None)) as tool:
        waiter = checks.sealed("waiters", ("second", "the-key"))
        tool.execute('INSERT INTO waiters (run, key, "check") VALUES (?, ?, ?)', waiter)
        tool.execute(statement)
        assert tool.execute("SELECT changes()").fetchall() != [(0,)]
    try:
        store = SqliteStore(path)
    except Corrupt:
        return
    try:
        assert store.verify() != []
    finally:
        store.close()


def test_an_append_of_who_was_owner_is_not_let_through_by_a_flipped_epoch(path: Path) -> None:
    made(path)
    store = SqliteStore(path)
    run = store.read_run("the-run")
    assert run is not None
    with closing(sqlite3.connect(path, isolation_level=None)) as tool:
        tool.execute("UPDATE runs SET epoch = epoch - 1")
    with pytest.raises(Corrupt):
        store.commit([append(replace(run, epoch=run.epoch - 1), b"late")])
    store.close()
