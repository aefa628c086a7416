"""The recovery log's table: a chain of entries; its length and head are in the store's own row."""

from __future__ import annotations

from collections.abc import Sequence

from ninelives.core.journal import recovery_log
from ninelives.core.model.log_entry import LogEntry, NewEntry
from ninelives.stores.shared import maintenance, rows
from ninelives.stores.shared.rows import decoding
from ninelives.stores.sqlite import checks
from ninelives.stores.sqlite.transaction import Transaction, find_runs


def append(tx: Transaction, new: Sequence[NewEntry]) -> None:
    """Append entries to the log."""
    if not new:
        return
    length, head = _end(tx)
    sealed = recovery_log.seal(length, head, tx.now_ms, new)
    tx.many("insert_entry", [rows.row_of_entry(entry) for entry in sealed])
    tx.do("write_log_head", (length + len(sealed), sealed[-1].check))


def read(tx: Transaction, run: str | None, below: int, limit: int) -> list[LogEntry]:
    """Return entries, newest first, each verified against the one before it."""
    if run is not None:
        found = tx.all("read_log_of_run", (run, below, limit))
    else:
        found = tx.all("read_log", (below, limit))
    with decoding("an entry of the recovery log"):
        entries = [rows.entry_of(row) for row in found]
    return [recovery_log.verify(_before(tx, entry.seq), entry) for entry in entries]


def verify(tx: Transaction) -> None:
    """Check the whole log. Raises Corrupt."""
    with decoding("an entry of the recovery log"):
        entries = [rows.entry_of(row) for row in tx.all("all_entries")]
    length, head = _end(tx)
    recovery_log.verify_all(entries, length=length, head=head, base=_base(tx))


def cut(tx: Transaction, before_ms: int) -> int:
    """Remove some of the oldest entries; return how many."""
    if not before_ms:
        return 0
    with decoding("an entry of the recovery log"):
        oldest = [rows.entry_of(row) for row in tx.all("oldest_entries", (maintenance.AT_ONCE,))]
    if not oldest or oldest[0].at_ms >= before_ms:
        return 0
    gone = maintenance.old_entries(oldest, before_ms, find_runs(tx, [one.run for one in oldest if one.run]))
    if gone:
        after = recovery_log.base_after(_base(tx), gone)
        tx.do("save_log_base", checks.sealed("log_base", (1, *after)))
        tx.do("cut_log", (after.seq,))
    return len(gone)


def _base(tx: Transaction) -> recovery_log.LogBase:
    row = tx.one("read_log_base")
    return recovery_log.LogBase(*row[1:]) if row is not None else recovery_log.LogBase()


def _end(tx: Transaction) -> tuple[int, bytes]:
    row = tx.one("read_store")
    return (row[4], row[5]) if row is not None and row[4] else (0, recovery_log.START)


def _before(tx: Transaction, seq: int) -> bytes:
    row = tx.one("read_entry_check", (seq - 1,))
    if row is not None:
        return bytes(row[0])
    base = _base(tx)
    return base.check if base.seq == seq else b""
