"""The recovery log in memory. Needs the store's lock."""

from __future__ import annotations

from collections.abc import Sequence

from ninelives.core.journal import recovery_log
from ninelives.core.model.log_entry import LogEntry, NewEntry
from ninelives.stores.memory.tables import Transaction


def append(tx: Transaction, new: Sequence[NewEntry]) -> None:
    """Append entries to the log."""
    log, base = tx.contents.log, tx.contents.log_base
    head = log[-1].check if log else base.check
    log.extend(recovery_log.seal(base.seq + len(log), head, tx.now_ms, new))


def read(tx: Transaction, run: str | None, below: int, limit: int) -> list[LogEntry]:
    """Return entries, newest first, each verified against the one before it."""
    log, base = tx.contents.log, tx.contents.log_base
    found = [entry for entry in reversed(log) if run in (None, entry.run) and entry.seq < below][:limit]
    return [
        recovery_log.verify(log[one.seq - base.seq - 1].check if one.seq > base.seq else base.check, one)
        for one in found
    ]
