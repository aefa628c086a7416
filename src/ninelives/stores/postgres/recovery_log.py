"""The recovery log's table: a chain of entries; its length and head are in a row that appenders lock."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ninelives.core.journal import recovery_log
from ninelives.core.model.log_entry import LogEntry, NewEntry
from ninelives.stores.postgres.server.queries import Values
from ninelives.stores.postgres.transaction import Transaction, decoding, texts
from ninelives.stores.shared import rows

_ABOVE_ALL = 2**62
Asking = Callable[[str, Values], list[rows.Row]]


def append(tx: Transaction, new: Sequence[NewEntry]) -> None:
    """Append entries to the log."""
    if not new:
        return
    ((length, head),) = tx.all("lock_log")
    sealed = recovery_log.seal(length, head, tx.now_ms, new)
    tx.many("insert_entry", [rows.row_of_entry(entry) for entry in sealed])
    tx.do("write_log_head", (length + len(sealed), sealed[-1].check))


def read(ask: Asking, run: str | None, before: int | None, limit: int) -> list[LogEntry]:
    """Return entries, newest first, each verified against the one before it."""
    below = _ABOVE_ALL if before is None else min(before, _ABOVE_ALL)
    if run is None:
        found = ask("read_log", (below, limit))
    else:
        found = ask("read_log_of_run", (run, below, limit)) if texts([run]) else []
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
    recovery_log.verify_all(entries, length=length, head=head)
