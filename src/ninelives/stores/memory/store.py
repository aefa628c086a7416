"""The `Store` protocol over dictionaries, under one lock.

Every method takes the lock, checks everything, and only then writes, so each is atomic. If we die,
everything is lost. This store is for tests, for trying things out, and as the reference for what the other
stores should answer.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from threading import Condition

from ninelives.core.clock import Clock
from ninelives.core.errors import StoreUnsafe
from ninelives.core.model.commit import Commit, Verdict
from ninelives.core.model.run import Claims, NewRun, RunRow
from ninelives.store import Pruned, Stats
from ninelives.stores.memory import claims, journals, lookups, maintenance, recovery_log
from ninelives.stores.memory.sessions import Sessions
from ninelives.stores.memory.tables import Contents, Tables, Transaction
from ninelives.stores.shared import commit_rules, inbound
from ninelives.stores.shared.checked_store import Answer, CheckedStore, Created
from ninelives.stores.shared.maintenance import Limits
from ninelives.stores.shared.selection import Wanted

VERSION = 3


class MemoryStore(CheckedStore[Transaction]):
    """Keep everything in memory; implements `Store` and `Maintenance`."""

    _journals, _log, _lookups, _open_tables = journals, recovery_log, lookups, Tables
    _sections = maintenance.SECTIONS

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._contents = Contents()
        self._changed = Condition()
        self._happened = self._seen = 0
        self._emitted = self._read_so_far = 0
        self._pid = os.getpid()
        self._sessions = Sessions(self._write)
        self._migrated = VERSION, VERSION

    @property
    def url(self) -> str:
        """Return the URL, safe to print."""
        return "memory:"

    @property
    def identity(self) -> str:
        """Return the empty string: an open memory store cannot become another one."""
        return ""

    def now_ms(self) -> int:
        """Return the clock's wall time."""
        self._require()
        return self._clock.now_ms()

    def _require(self) -> None:
        if os.getpid() != self._pid:
            raise StoreUnsafe(
                "this store was opened by another process and came here by fork",
                remedy="Open the store after the fork",
            )

    def _write(self, work: Callable[[Transaction], Answer]) -> Answer:
        self._require()
        with self._changed:
            tx = Transaction(self._contents, self._clock)
            answer = work(tx)
            if tx.wakes:
                self._wake()
            elif tx.emits:
                self._emitted += 1
                self._changed.notify_all()
            return answer

    _read = _write

    def _wake(self) -> None:
        self._happened += 1
        self._emitted += 1
        self._changed.notify_all()

    def _create(self, tx: Transaction, new: Sequence[NewRun], session: str | None) -> Created:
        return claims.create(tx, new, session)

    def _claim(self, session: str, limit: int, wanted: Wanted) -> Claims:
        return self._write(lambda tx: claims.claim(tx, session, limit, wanted))

    def salvage(self, run: str, epoch: int) -> RunRow:
        """Cut a damaged journal back to its last good prefix."""
        return self._write(lambda tx: inbound.salvage(tx, Tables(tx), run, epoch))

    def commit(self, batch: Sequence[Commit]) -> list[Verdict]:
        """Append to many runs; one verdict each."""
        commit_rules.require_distinct(batch)
        return self._write(lambda tx: [self._committed(tx, one) for one in batch])

    def _committed(self, tx: Transaction, commit: Commit) -> Verdict:
        (verdict,) = commit_rules.apply(tx, Tables(tx), [commit])
        return verdict

    # Waiting ------------------------------------------------------------------------------------

    def wait_for_work(self, timeout_seconds: float) -> bool:
        """Block until something has happened since the last call, or until the timeout."""
        self._require()
        with self._changed:
            # Each waiter compares with what it saw itself, so the first to wake does not hide it from others.
            seen = self._seen
            woken = self._changed.wait_for(lambda: self._happened != seen, max(0.0, timeout_seconds))
            self._seen = self._happened
            return woken

    def wait_for_output(self, timeout_seconds: float) -> bool:
        """Block until output came or a run ended since the last call, or until the timeout."""
        self._require()
        with self._changed:
            seen = self._read_so_far
            woken = self._changed.wait_for(lambda: self._emitted != seen, max(0.0, timeout_seconds))
            self._read_so_far = self._emitted
            return woken

    def close(self) -> None:
        """Wake all waiters; there is nothing else to release."""
        with self._changed:
            self._wake()

    # Maintenance --------------------------------------------------------------------------------

    def stats(self) -> Stats:
        """Measure the store."""
        return self._read(lambda tx: maintenance.measure(tx.contents))

    def _prune(self, limits: Limits) -> Pruned:
        return self._write(lambda tx: maintenance.prune(tx.contents, limits, tx.now_ms))
