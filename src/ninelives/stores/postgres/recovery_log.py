"""The recovery log's table: a chain of entries; its length and head are in a row that appenders lock."""

from __future__ import annotations

from collections.abc import Sequence

from ninelives.core.journal import recovery_log
from ninelives.core.model.log_entry import LogEntry, NewEntry
from ninelives.stores.postgres.transaction import Transaction, runs_in
from ninelives.stores.shared import maintenance, rows
from ninelives.stores.shared.rows import decoding


def append(tx: Transaction, new: Sequence[NewEntry]) -> None:
    """Append entries to the log."""
    if not new:
        return
    ((length, head),) = tx.all("lock_log")
    sealed = recovery_log.seal(length, head, tx.now_ms, new)
    tx.many("insert_entry", [rows.row_of_entry(entry) for entry in sealed])
    tx.do("write_log_head", (length + len(sealed), sealed[-1].check))


def read(tx: Transaction, run: str | None, below: int, limit: int) -> list[LogEntry]:
    """Return entries, newest first, each verified against the one before it."""
    if run is None:
        found = tx.all("read_log", (below, limit))
    else:
        found = tx.all("read_log_of_run", (run, below, limit))
    entries = []
    for *row, previous in found:
        with decoding("an entry of the recovery log"):
            entry = rows.entry_of(tuple(row))
        entries.append(recovery_log.verify(previous or (b"" if entry.seq else recovery_log.START), entry))
    return entries


def verify(tx: Transaction) -> None:
    """Check the whole log. Raises Corrupt."""
    with decoding("an entry of the recovery log"):
        entries = [rows.entry_of(row) for row in tx.all("all_entries")]
    ((length, head),) = tx.all("read_log_head")
    recovery_log.verify_all(entries, length=length, head=head, base=_base(tx))


def cut(tx: Transaction, before_ms: int) -> int:
    """Remove some of the oldest entries; return how many."""
    if not before_ms:
        return 0
    tx.all("lock_log")
    with decoding("an entry of the recovery log"):
        oldest = [rows.entry_of(row) for row in tx.all("oldest_entries", (maintenance.AT_ONCE,))]
    if not oldest or oldest[0].at_ms >= before_ms:
        return 0
    named = rows.texts(one.run for one in oldest if one.run)
    gone = maintenance.old_entries(oldest, before_ms, runs_in(tx.all("read_runs", (named,))))
    if gone:
        after = recovery_log.base_after(_base(tx), gone)
        tx.do("write_log_base", tuple(after))
        tx.do("cut_log", (after.seq,))
    return len(gone)


def _base(tx: Transaction) -> recovery_log.LogBase:
    ((seq, check),) = tx.all("read_log_base")
    return recovery_log.LogBase(seq, check if check is not None else recovery_log.START)
