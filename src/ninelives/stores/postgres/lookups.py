"""Runs, keys, inbox items, blobs, documents and counters, by name; each is one statement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from msgspec import Struct

from ninelives.core.model.capsule import Changes, KeyPage
from ninelives.core.model.counter import Counts, RunCount
from ninelives.core.model.document import Document
from ninelives.core.model.gauges import Gauges
from ninelives.core.model.inbox import Item
from ninelives.core.model.key import Key
from ninelives.core.model.run import RunQuery, RunRow
from ninelives.core.rules import counting, documents, run_rules
from ninelives.core.values import blobs
from ninelives.stores.postgres.server.connection import ServerAnswer
from ninelives.stores.postgres.transaction import Transaction, runs_in
from ninelives.stores.shared import gauges, rows, selection
from ninelives.stores.shared.rows import decoding
from ninelives.stores.shared.selection import OVERLAP_MS, mark_of, read_cursor, write_cursor


def find_runs(tx: Transaction, names: Sequence[str]) -> dict[str, RunRow]:
    """Return the rows of those runs that exist, in the order of `names`."""
    by_name = runs_in(tx.all("read_runs", (rows.texts(names),)))
    return {name: by_name[name] for name in names if name in by_name}


def list_runs(tx: Transaction, query: RunQuery) -> list[RunRow]:
    """Return the matching runs; see `Store.list_runs`."""
    wanted = msgspec.to_builtins(query) | {
        "states": list(dict.fromkeys(query.states)),
        "labels": msgspec.json.encode(query.labels).decode(),
    }
    return list(runs_in(tx.all(_listing(query), wanted)).values())


def _listing(query: RunQuery) -> str:
    """Return the statement that uses the narrowest index for a query."""
    if query.parent is not None:
        return "list_children"
    if query.session is not None:
        return "list_owned"
    if query.labels:
        return "list_labelled"
    if selection.is_of_ended(query):
        return "list_ended"
    return "list_in_states" if query.states else "list_runs"


def read_keys(tx: Transaction, keys: Sequence[str]) -> dict[str, Key]:
    """Return the rows of those keys that were ever used."""
    found = tx.all("read_keys", (keys,))
    with rows.decoding("a key"):
        by_name = {row[0]: rows.key_of(row) for row in found}
    return {key: by_name[key] for key in keys if key in by_name}


def list_items(
    tx: Transaction, run: str | None, item: str | None, limit: int, *, answered: bool
) -> list[Item]:
    """Return the items that may match, oldest first; see `Store.list_inbox`."""
    if item is not None:
        found = tx.all("read_items", ([item],))
    elif run is not None:
        found = tx.all("items_of_runs", ([run],))
    else:
        found = tx.all("list_inbox" if answered else "list_open_items", (limit,))
    with rows.decoding("an inbox item", run):
        return [rows.item_of(row) for row in found]


def known_blobs(tx: Transaction, digests: Sequence[bytes]) -> set[bytes]:
    """Return which of these blobs exist."""
    return {digest for (digest,) in tx.all("known_blobs", (digests,))}


def read_blobs(tx: Transaction, digests: Sequence[bytes]) -> dict[bytes, bytes]:
    """Return those blobs that exist, packed."""
    return dict(tx.all("read_blobs", (digests,)))


def put_blobs(tx: Transaction, contents: Mapping[bytes, bytes], packed: Mapping[bytes, bytes]) -> None:
    """Insert blobs, and spare known ones from pruning for a while: they are about to be referred to."""
    known = sorted(contents.keys() - packed.keys())
    if known:
        tx.do("touch_blobs", (tx.now_ms, known, tx.now_ms - run_rules.BLOB_GRACE_MS // 4))
        # A sweep may have removed some since the caller asked; what is there after the touch is spared.
        swept = set(known) - known_blobs(tx, known)
        packed = {**packed, **{digest: blobs.pack(contents[digest]) for digest in swept}}
    tx.many("insert_blob", [(digest, content, tx.now_ms) for digest, content in sorted(packed.items())])


def find_document(tx: Transaction, name: str) -> Document | None:
    """Return a document, if there is one; its name is locked before."""
    tx.ask("lock_documents", ([name], [True]))
    return next(iter(documents_in(tx.all("read_document", (name,)))), None)


def halts_version(found: ServerAnswer) -> int:
    """Return the version of the document `halts`, by the answer to `document_version`; 0 if there is none."""
    return next((int(version) for (version,) in found.fetchall()), 0)


def list_documents(tx: Transaction, prefix: str, after: str, limit: int) -> list[Document]:
    """Return documents by name."""
    return documents_in(tx.all("list_documents", (*documents.bounds(prefix, after), limit)))


def documents_in(found: Sequence[rows.Row]) -> list[Document]:
    """Return the documents of rows. Raises Corrupt."""
    with rows.decoding("a document"):
        return [rows.document_of(row) for row in found]


def save_document(tx: Transaction, document: Document) -> bool:
    """Write a document that is new or locked; False when another transaction has created it first."""
    name = "insert_document" if document.version == 1 else "update_document"
    tx.is_changed = True
    return bool(tx.all(name, rows.row_of_document(document)))


def remove_document(tx: Transaction, name: str) -> None:
    """Remove a document."""
    tx.do("delete_document", (name,))


def count_gauges(tx: Transaction) -> Gauges:
    """Count what metrics show."""
    return gauges.counted(tx, {str(table): int(size) for table, size in tx.all("gauge_used")})


def add_counts(tx: Transaction, counts: Counts) -> None:
    """Let counters grow."""
    if not counts:
        return
    # Whatever grows counters holds the log's row, after the rows of sessions and runs: two transactions that
    # grow the same counters in different orders would deadlock.
    tx.all("lock_log")
    tx.many("add_count", [(*one, number) for one, number in counts.items()])


def read_counters(tx: Transaction) -> tuple[Counts, Sequence[str], Sequence[RunCount]]:
    """Return the counters, the counts of live sessions, and how many runs there are."""
    with rows.decoding("a counter"):
        stored = dict(rows.counter_of(row) for row in tx.all("all_counters"))
    return stored, [counts for (counts,) in tx.all("live_counts")], count_runs(tx)


def count_runs(tx: Transaction) -> list[RunCount]:
    """Count the runs of each agent, queue and state."""
    with rows.decoding("a run's row"):
        return counting.run_counts(tx.all("count_runs_by_agent"))


# Changes ----------------------------------------------------------------------------------------
#
# Writers pay nothing for it: the id of the transaction that wrote a row (xmin) is its stamp; all runs that
# have not ended are compared. Those that ended are found by the time of their end. A transaction may commit
# long after it took its time: so the cursor keeps when each snapshot was taken and the first transaction id
# that was not given then. Whatever was still under way at the last snapshot began after the newest of those
# whose ids had all been decided by then; from that moment on, ended runs are listed again.


_MOST_MOMENTS = 50


class SnapshotCursor(Struct, frozen=True, kw_only=True, array_like=True):
    """Where a list of all runs has got to (None: it is whole), and from when on ended runs are wanted.

    `moments` are times, oldest first, and the first transaction id that was not given then.
    """

    since_ms: int
    moments: tuple[tuple[int, int], ...]
    after: int | None = None


def read_changes(tx: Transaction, cursor: str, limit: int) -> Changes:
    """Return runs that may have changed; see `Maintenance.changed_runs`."""
    known = read_cursor(cursor, SnapshotCursor)
    ((store, oldest, following),) = tx.all("read_horizon")
    if known is None:
        # Whatever is not decided yet may have taken its time at any moment before.
        known = SnapshotCursor(since_ms=0, moments=((tx.now_ms, following),), after=0)
        known = _moved(known, oldest)
    if known.after is not None:
        found = tx.all("mark_runs", (known.after, limit))
        after = found[-1][0] if len(found) == limit else None
        cut = SnapshotCursor(since_ms=known.since_ms, moments=known.moments, after=after)
        marks = tuple(mark_of(row[1:]) for row in found)
        return Changes(store=store, runs=marks, cursor=write_cursor(cut), is_whole=after is None)
    since = min(known.since_ms, tx.now_ms) - OVERLAP_MS
    found = tx.all("mark_unfinished") + tx.all("mark_ended", (since,))
    moments = (*known.moments, (tx.now_ms, following))
    moved = _moved(SnapshotCursor(since_ms=known.since_ms, moments=moments), oldest)
    return Changes(store=store, runs=tuple(map(mark_of, found)), cursor=write_cursor(moved))


def _moved(cursor: SnapshotCursor, oldest: int) -> SnapshotCursor:
    """Move on to the newest moment at which every transaction that had an id then is decided by now."""
    decided = [at for at, (_, following) in enumerate(cursor.moments) if following <= oldest]
    left = cursor.moments[decided[-1] + 1 :] if decided else cursor.moments
    since = cursor.moments[decided[-1]][0] if decided else cursor.since_ms
    # While a transaction stays open for long, early moments are the ones that count.
    return SnapshotCursor(since_ms=since, moments=left[:_MOST_MOMENTS], after=cursor.after)


def list_keys(tx: Transaction, cursor: str, limit: int) -> KeyPage:
    """Return business keys in the order of their names."""
    found = tx.all("list_keys", (cursor, limit))
    with decoding("a business key"):
        keys = tuple(rows.key_of(row) for row in found)
    return KeyPage(keys, keys[-1].key if len(keys) == limit else "")
