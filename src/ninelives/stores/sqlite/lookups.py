"""Runs, keys, inbox items, blobs, documents and counters, by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec.structs import replace

from ninelives.core.errors import Corrupt
from ninelives.core.model.capsule import Changes, KeyPage, RunMark
from ninelives.core.model.counter import Counts, RunCount
from ninelives.core.model.document import HALTS, UNREADABLE, Document
from ninelives.core.model.gauges import Gauges
from ninelives.core.model.inbox import Item
from ninelives.core.model.key import Key
from ninelives.core.model.run import RunQuery, RunRow
from ninelives.core.rules import counting, documents, run_rules
from ninelives.core.values import blobs
from ninelives.stores.shared import gauges, rows, selection
from ninelives.stores.shared.rows import decoding
from ninelives.stores.shared.selection import OVERLAP_MS, TimedCursor, mark_of, read_cursor, write_cursor
from ninelives.stores.sqlite import checks
from ninelives.stores.sqlite.transaction import Transaction, find_key, find_run


def find_runs(tx: Transaction, names: Sequence[str]) -> dict[str, RunRow]:
    """Return the rows of those runs that exist."""
    return {run: row for run in names if (row := find_run(tx, run)) is not None}


def list_runs(tx: Transaction, query: RunQuery) -> list[RunRow]:
    """Return the matching runs, newest first; see `Store.list_runs`."""
    states, labels = (msgspec.json.encode(part).decode() for part in (query.states, query.labels))
    wanted = msgspec.to_builtins(query) | {"states": states, "labels": labels}
    name = "list_runs" if query.parent is None else "list_children"
    if query.labels and query.parent is None:
        name = "list_labelled"
        wanted["label"], wanted["value"] = next(iter(query.labels.items()))
    elif selection.is_of_ended(query):
        name = "list_ended"
    with decoding("a run's row"):
        return [rows.run_of(row) for row in tx.all(name, wanted)]


def read_keys(tx: Transaction, keys: Sequence[str]) -> dict[str, Key]:
    """Return the rows of those keys that were ever used."""
    return {key: row for key in keys if (row := find_key(tx, key)) is not None}


def list_items(
    tx: Transaction, run: str | None, item: str | None, limit: int, *, answered: bool
) -> list[Item]:
    """Return the items that may match, oldest first; see `Store.list_inbox`."""
    if item is not None:
        found = tx.all("read_item", (item,))
    elif run is not None:
        found = tx.all("items_of_run", (run,))
    else:
        found = tx.all("list_inbox" if answered else "list_open_items", (limit,))
    with decoding("an inbox item", run):
        return [rows.item_of(row) for row in found]


def known_blobs(tx: Transaction, digests: Sequence[bytes]) -> set[bytes]:
    """Return which of these blobs exist."""
    return {digest for digest in digests if tx.one("has_blob", (digest,)) is not None}


def read_blobs(tx: Transaction, digests: Sequence[bytes]) -> dict[bytes, bytes]:
    """Return those blobs that exist, packed."""
    return {digest: row[0] for digest in digests if (row := tx.one("read_blob", (digest,))) is not None}


def put_blobs(tx: Transaction, contents: Mapping[bytes, bytes], packed: Mapping[bytes, bytes]) -> None:
    """Insert blobs, and spare known ones from pruning for a while: they are about to be referred to."""
    for digest, content in contents.items():
        # A sweep may have removed it since the caller asked which are known.
        if digest in packed or tx.one("has_blob", (digest,)) is None:
            sealed = checks.sealed("blobs", (digest, tx.now_ms))
            tx.do("insert_blob", (*sealed, packed.get(digest) or blobs.pack(content)))
        else:
            # Only when a quarter of its grace is over: a blob that every step puts again costs no write.
            tx.do("touch_blob", (tx.now_ms, digest, tx.now_ms - run_rules.BLOB_GRACE_MS // 4))


def find_document(tx: Transaction, name: str) -> Document | None:
    """Return a document, if there is one."""
    found = tx.all("read_document", (name,))
    return _documents(found)[0] if found else None  # most often there is none: each protected start asks


def halts_version(tx: Transaction) -> int:
    """Return the version of the document `halts`: 0 if there is none, UNREADABLE if it is damaged."""
    try:
        known = find_document(tx, HALTS)
    except Corrupt:  # no reason to lose the lease: what is halted cannot be read, so nothing may begin
        return UNREADABLE
    return known.version if known is not None else 0


def list_documents(tx: Transaction, prefix: str, after: str, limit: int) -> list[Document]:
    """Return documents by name."""
    return _documents(tx.all("list_documents", (*documents.bounds(prefix, after), limit)))


def _documents(found: Sequence[rows.Row]) -> list[Document]:
    with decoding("a document"):
        return [rows.document_of(row) for row in found]


def save_document(tx: Transaction, document: Document) -> bool:
    """Write a document."""
    tx.do("save_document", checks.sealed("documents", rows.row_of_document(document)))
    return True


def remove_document(tx: Transaction, name: str) -> None:
    """Remove a document."""
    tx.do("delete_document", (name,))


def count_gauges(tx: Transaction) -> Gauges:
    """Count what metrics show."""
    name = tx.cursor.connection.filename
    parts = {"database": Path(name), "log": Path(f"{name}-wal")}
    return gauges.counted(tx, {part: path.stat().st_size for part, path in parts.items() if path.exists()})


def add_counts(tx: Transaction, counts: Counts) -> None:
    """Let counters grow."""
    for one, number in counts.items():
        known = tx.one("read_counter", one)
        value = number if known is None else known[2] + number
        tx.do("save_counter", checks.sealed("counters", (*one, value)))


def read_counters(tx: Transaction) -> tuple[Counts, Sequence[str], Sequence[RunCount]]:
    """Return the counters, the counts of live sessions, and how many runs there are."""
    with decoding("a counter"):
        stored = dict(rows.counter_of(row) for row in tx.all("all_counters"))
    return stored, [row[-1] for row in tx.all("live_sessions")], count_runs(tx)


def count_runs(tx: Transaction) -> list[RunCount]:
    """Count the runs of each agent, queue and state."""
    with decoding("a run's row"):
        return counting.run_counts(tx.all("count_runs_by_agent"))


def read_changes(tx: Transaction, cursor: str, limit: int) -> Changes:
    """Return runs that may have changed; see `Maintenance.changed_runs`.

    Writers pay nothing for it: a row's two checks are its stamp, and all runs that have not ended are
    compared. A transaction reads its time under the writers' lock, so those that ended since are found by
    that time. If the count of commits is as it was, no run is read.
    """
    known = read_cursor(cursor, TimedCursor) or TimedCursor(since_ms=tx.now_ms, after=0)
    ((store, _, commits, *_),) = tx.all("read_store")
    name = store.hex()
    if known.after is not None:
        found = tx.all("mark_runs", (known.after, limit))
        after = found[-1][0] if len(found) == limit else None
        marks = tuple(mark_of(row[1:]) for row in found)
        return _changes(name, marks, replace(known, after=after))
    if known.commits == commits:
        return _changes(name, (), known)
    # A clock that was set back: the earlier of both.
    since = min(known.since_ms, tx.now_ms) - OVERLAP_MS
    found = tx.all("mark_unfinished") + tx.all("mark_ended", (since,))
    return _changes(name, tuple(map(mark_of, found)), TimedCursor(since_ms=tx.now_ms, commits=commits))


def _changes(store: str, marks: tuple[RunMark, ...], cursor: TimedCursor) -> Changes:
    return Changes(store=store, runs=marks, cursor=write_cursor(cursor), is_whole=cursor.after is None)


def list_keys(tx: Transaction, cursor: str, limit: int) -> KeyPage:
    """Return business keys in the order of their names."""
    found = tx.all("list_keys", (cursor, limit))
    with decoding("a business key"):
        keys = tuple(rows.key_of(row) for row in found)
    return KeyPage(keys, keys[-1].key if len(keys) == limit else "")
