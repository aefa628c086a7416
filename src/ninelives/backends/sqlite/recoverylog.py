"""The recovery log's table: entries chained in order, its length and head in the store's own row."""

from __future__ import annotations

from collections.abc import Sequence

from ninelives.backends import rows
from ninelives.backends.sqlite.transaction import Transaction, decoding
from ninelives.core import recoverylog
from ninelives.core.entries import Entry, NewEntry

_ABOVE_ALL = 2**62


def append(tx: Transaction, new: Sequence[NewEntry]) -> None:
    """Append entries to the log."""
    if not new:
        return
    length, head = _end(tx)
    sealed = recoverylog.seal(length, head, tx.now_ms, new)
    tx.many("insert_entry", [rows.row_of_entry(entry) for entry in sealed])
    tx.do("write_log_head", (length + len(sealed), sealed[-1].check))


def read(tx: Transaction, run: str | None, before: int | None, limit: int) -> list[Entry]:
    """Return entries, newest first, each verified against the one before it."""
    below = _ABOVE_ALL if before is None else before
    if run is not None:
        found = tx.all("read_log_of_run", (run, below, limit))
    else:
        found = tx.all("read_log", (below, limit))
    with decoding("an entry of the recovery log"):
        entries = [rows.entry_of(row) for row in found]
    return [recoverylog.verify(_before(tx, entry.seq), entry) for entry in entries]


def verify(tx: Transaction) -> None:
    """Check the whole log. Raises Corrupt."""
    with decoding("an entry of the recovery log"):
        entries = [rows.entry_of(row) for row in tx.all("all_entries")]
    length, head = _end(tx)
    recoverylog.verify_all(entries, length=length, head=head)


def _end(tx: Transaction) -> tuple[int, bytes]:
    row = tx.one("read_store")
    return (row[4], row[5]) if row is not None and row[4] else (0, recoverylog.START)


def _before(tx: Transaction, seq: int) -> bytes:
    if seq == 0:
        return recoverylog.START
    row = tx.one("read_entry_check", (seq - 1,))
    return row[0] if row is not None else b""
