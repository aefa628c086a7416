"""How the file is verified: every page, every row by its check, every chain, every blob.

SQLite's own check of the structure cannot be divided: it reads the file in one transaction, which no writer
waits for. Everything else is read in small parts.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol, TypeVar

from ninelives.core.model.inbox import ItemState
from ninelives.core.model.run import Record, RunRow
from ninelives.store import Fault, Progress
from ninelives.stores.shared import rows, walk
from ninelives.stores.shared.walk import KeyedRows
from ninelives.stores.sqlite import checks, halves, lookups, recovery_log
from ninelives.stores.sqlite.files import structure
from ninelives.stores.sqlite.files.connection import translated
from ninelives.stores.sqlite.queries import SQL
from ninelives.stores.sqlite.transaction import Transaction, get_run

Answer = TypeVar("Answer")
Page = tuple[list[Fault], int, str | None]
_READERS = walk.READERS


class TableReader(Protocol):
    """What can be verified: a store's files, or a copy of them."""

    def require(self) -> None:
        """Check that this process may read."""

    def read(self, work: Callable[[Transaction], Answer]) -> Answer:
        """Run a reading transaction."""


def verify(files: TableReader, progress: Progress | None) -> list[Fault]:
    """Read every page, every chain and every blob; collect all faults, not only the first."""
    files.require()
    return walk.verify(files.read, SECTIONS, progress)


def _structure(tx: Transaction) -> list[Fault]:
    return [Fault(None, f"SQLite: {line}") for line in structure.faults(tx.cursor.connection)]


def _stray_labels(tx: Transaction) -> list[Fault]:
    what = "the labels of a run are not those of its row (number %d)"
    return [Fault(None, what % number) for (number,) in tx.all("stray_labels")]


def _journal(tx: Transaction, run_id: str) -> tuple[RunRow, tuple[Record, ...]]:
    run = get_run(tx, run_id)
    found = tx.all("read_records", (run.number, run.base))
    return run, tuple(halves.record_of(row) for row in found)


def _beside(tx: Transaction, run: RunRow, keys: list[str]) -> walk.Beside:
    return walk.Beside(
        keys=lookups.read_keys(tx, keys),
        items={item: ItemState(state) for item, state in tx.all("item_states", (run.id,))},
        signals=walk.signal_numbers(tx.all("signal_numbers", (run.number,))),
        sessions={name for (name,) in tx.all("known_sessions", (run.session, run.left_by))},
        blobs={digest for (digest,) in tx.all("blobs_of_run", (run.number,))},
    )


def _rows(
    table: KeyedRows,
    read: Callable[[rows.Row], object],
    orphans: Callable[[Transaction, tuple[Any, ...], tuple[Any, ...]], list[Fault]] | None = None,
) -> walk.Section:
    """Make a section of rows, each verified by its check; `orphans` are the faults between two keys."""
    verified = checks.VERIFIED[table.name]

    def page(tx: Transaction, after: str, limit: int) -> Page:
        before = table.values(after)
        with translated():  # unverified, so that each fault is found
            found = tx.cursor.execute(SQL[table.name], (*before, limit)).fetchall()
        faults = list(walk.row_faults(table.name, found, lambda row: read(verified(row))))
        if orphans is not None and found:
            faults += orphans(tx, before, tuple(found[-1][column] for column in table.at))
        return faults, len(found), table.position(before, found, limit)

    return walk.pages(page)


def _stray_keys(tx: Transaction, before: tuple[Any, ...], last: tuple[Any, ...]) -> list[Fault]:
    return [walk.stray_key(*row) for row in tx.all("stray_keys", (*before, *last))]


def _missing_blobs(tx: Transaction, before: tuple[Any, ...], last: tuple[Any, ...]) -> list[Fault]:
    return [walk.missing_blob(*row) for row in tx.all("missing_blobs", (*before, *last))]


def _counters(tx: Transaction) -> list[Fault]:
    with translated():
        found = tx.cursor.execute(SQL["all_counters"]).fetchall()
    verified = checks.VERIFIED["all_counters"]
    return list(walk.row_faults("all_counters", found, lambda row: _READERS["all_counters"](verified(row))))


def _digests(tx: Transaction, after: str, limit: int) -> tuple[list[bytes], str | None]:
    found = tx.all("blob_digests", (int(after or 0), limit))
    return [digest for _, digest in found], walk.last_of(found, limit, lambda row: str(row[0]))


_BY_TEXT = partial(KeyedRows, at=(0,), start=("",))
SECTIONS: walk.Sections = {
    "structure": walk.whole(_structure),
    "stray labels": walk.whole(_stray_labels),
    "stray records": walk.STRAY_RECORDS,
    "runs": walk.runs_by_sql(_journal, _beside),
    "keys": _rows(_BY_TEXT("all_keys"), _READERS["all_keys"], _stray_keys),
    "items": _rows(_BY_TEXT("all_items"), _READERS["all_items"]),
    "signals": _rows(KeyedRows("all_signals", (6, 0), (-1, -1)), _READERS["all_signals"]),
    "sessions": _rows(_BY_TEXT("all_sessions"), _READERS["all_sessions"]),
    "documents": _rows(_BY_TEXT("all_documents"), _READERS["all_documents"]),
    "counters": walk.whole(_counters),
    "references": _rows(KeyedRows("blob_references", (0, 1), (b"", -1)), tuple, _missing_blobs),
    "waiters": _rows(KeyedRows("all_waiters", (1, 0), ("", "")), tuple),
    "labels": _rows(KeyedRows("all_labels", (0, 1, 2), ("", "", -1)), tuple),
    "log": walk.whole(recovery_log.verify),
    "blobs": walk.Blobs(
        listed=_digests,
        packed=lambda tx, digest: next((row[0] for row in tx.all("read_blob", (digest,))), None),
    ),
}
"""How the file is verified, in order."""
