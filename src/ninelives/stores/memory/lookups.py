"""Runs, keys, inbox items, blobs, documents and counters, by name. Needs the store's lock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from itertools import islice

import msgspec

from ninelives.core.model.capsule import Changes, KeyPage, RunMark
from ninelives.core.model.counter import Counts, RunCount
from ninelives.core.model.document import HALTS, Document
from ninelives.core.model.gauges import Gauges
from ninelives.core.model.inbox import Item, ItemState
from ninelives.core.model.key import Key
from ninelives.core.model.run import RunQuery, RunRow
from ninelives.core.rules import counting, gauges
from ninelives.core.rules import run_rules as rules
from ninelives.core.values import blobs
from ninelives.stores.memory.tables import Blob, Transaction
from ninelives.stores.shared.selection import OVERLAP_MS, TimedCursor, fits, read_cursor, write_cursor


def find_runs(tx: Transaction, names: Sequence[str]) -> dict[str, RunRow]:
    """Return the rows of those runs that exist."""
    runs = tx.contents.rows.runs
    return {name: runs[name] for name in names if name in runs}


def list_runs(tx: Transaction, query: RunQuery) -> list[RunRow]:
    """Return the matching runs, newest first."""
    fitting = [run for run in tx.contents.rows.runs.values() if fits(run, query)]
    return sorted(fitting, key=lambda run: run.number, reverse=True)[: query.limit]


def read_keys(tx: Transaction, keys: Sequence[str]) -> dict[str, Key]:
    """Return the rows of those keys that were ever used."""
    known = tx.contents.rows.keys
    return {key: known[key] for key in keys if key in known}


def list_items(
    tx: Transaction, run: str | None, item: str | None, limit: int, *, answered: bool
) -> list[Item]:
    """Return the items that may match, oldest first."""
    items = tx.contents.rows.items
    found = items.values() if item is None else [items[item]] if item in items else []
    is_wanted = (one for one in found if run in (None, one.run))
    return list(islice((one for one in is_wanted if answered or one.state is ItemState.OPEN), limit))


def known_blobs(tx: Transaction, digests: Sequence[bytes]) -> set[bytes]:
    """Return which of these blobs exist."""
    return {digest for digest in digests if digest in tx.contents.blobs}


def read_blobs(tx: Transaction, digests: Sequence[bytes]) -> dict[bytes, bytes]:
    """Return those blobs that exist, packed."""
    known = tx.contents.blobs
    return {digest: known[digest].packed for digest in digests if digest in known}


def put_blobs(tx: Transaction, contents: Mapping[bytes, bytes], packed: Mapping[bytes, bytes]) -> None:
    """Insert blobs, and spare known ones from pruning for a while: they are about to be referred to."""
    now_ms, kept = tx.now_ms, tx.contents.blobs
    for digest, content in contents.items():
        if digest not in kept:
            kept[digest] = Blob(packed.get(digest) or blobs.pack(content), now_ms)
        elif kept[digest].put_ms < now_ms - rules.BLOB_GRACE_MS // 4:
            kept[digest].put_ms = now_ms


def find_document(tx: Transaction, name: str) -> Document | None:
    """Return a document, if there is one."""
    return tx.contents.rows.documents.get(name)


def halts_version(tx: Transaction) -> int:
    """Return the version of the document `halts`, 0 if there is none."""
    known = find_document(tx, HALTS)
    return known.version if known is not None else 0


def list_documents(tx: Transaction, prefix: str, after: str, limit: int) -> list[Document]:
    """Return documents by name."""
    known = tx.contents.rows.documents
    names = sorted(name for name in known if name.startswith(prefix) and name > after)
    return [known[name] for name in names[:limit]]


def save_document(tx: Transaction, document: Document) -> bool:
    """Write a document."""
    tx.contents.rows.documents[document.name] = document
    return True


def remove_document(tx: Transaction, name: str) -> None:
    """Remove a document."""
    del tx.contents.rows.documents[name]


def count_gauges(tx: Transaction) -> Gauges:
    """Count what metrics show."""
    rows = tx.contents.rows
    items = [
        (rows.runs[item.run].agent, item) for item in rows.items.values() if item.state is ItemState.OPEN
    ]
    sessions = {name: lease.session for name, lease in tx.contents.sessions.items()}
    return gauges.counted(tx.now_ms, rows.runs.values(), sessions, items, {})


def add_counts(tx: Transaction, counts: Counts) -> None:
    """Let counters grow."""
    tx.contents.grow(counts)


def read_counters(tx: Transaction) -> tuple[Counts, Sequence[str], Sequence[RunCount]]:
    """Return the counters, the counts of live sessions, and how many runs there are."""
    leases = tx.contents.sessions.values()
    live = [lease.session.counts for lease in leases if lease.session.ended_ms is None]
    return tx.contents.counters, live, count_runs(tx)


def count_runs(tx: Transaction) -> list[RunCount]:
    """Count the runs of each agent, queue and state."""
    found = Counter((run.agent, run.queue, run.state.value) for run in tx.contents.rows.runs.values())
    return counting.run_counts((*one, number) for one, number in found.items())


def read_changes(tx: Transaction, cursor: str, limit: int) -> Changes:
    """Return runs that may have changed; see `Maintenance.changed_runs`."""
    known = read_cursor(cursor, TimedCursor) or TimedCursor(since_ms=tx.now_ms, after=0)
    runs = tx.contents.rows.runs.values()
    if known.after is not None:
        after = known.after
        page = sorted((run for run in runs if run.number > after), key=lambda run: run.number)[:limit]
        cut = TimedCursor(since_ms=known.since_ms, after=page[-1].number if len(page) == limit else None)
        return Changes(
            store=tx.contents.id,
            runs=tuple(map(_mark, page)),
            cursor=write_cursor(cut),
            is_whole=cut.after is None,
        )
    since = min(known.since_ms, tx.now_ms) - OVERLAP_MS
    found = tuple(_mark(run) for run in runs if not run.state.is_final or run.changed_ms >= since)
    return Changes(store=tx.contents.id, runs=found, cursor=write_cursor(TimedCursor(since_ms=tx.now_ms)))


def _mark(run: RunRow) -> RunMark:
    return RunMark(
        id=run.id,
        stamp=blake2b(msgspec.msgpack.encode(run), digest_size=16).hexdigest(),
        length=run.length,
        head=run.head,
        created_ms=run.created_ms,
        is_final=run.state.is_final,
    )


def list_keys(tx: Transaction, cursor: str, limit: int) -> KeyPage:
    """Return business keys in the order of their names."""
    known = tx.contents.rows.keys
    names = sorted(name for name in known if name > cursor)[:limit]
    return KeyPage(tuple(known[name] for name in names), names[-1] if len(names) == limit else "")
