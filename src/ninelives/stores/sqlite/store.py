"""The embedded store: one SQLite file, many processes on one host.

`ninelives.store.Store` says what each method means; `sqlite.files` says how it becomes durable.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from urllib.parse import quote

from ninelives.core.clock import Clock
from ninelives.core.errors import BadRecord, StoreUnavailable
from ninelives.core.model.commit import Commit, Verdict
from ninelives.core.model.run import Claims, NewRun, RunRow
from ninelives.core.model.session import Cause
from ninelives.core.rules import run_rules
from ninelives.store import Progress, Pruned, Stats
from ninelives.stores.clock import SystemClock
from ninelives.stores.shared.checked_store import Answer, CheckedStore, Created
from ninelives.stores.shared.maintenance import Limits
from ninelives.stores.shared.selection import Wanted
from ninelives.stores.sqlite import claims, commits, journals, lookups, maintenance, recovery_log, salvage
from ninelives.stores.sqlite.files import backups, schema, verification
from ninelives.stores.sqlite.files.database import Database
from ninelives.stores.sqlite.sessions import Sessions
from ninelives.stores.sqlite.tables import Tables
from ninelives.stores.sqlite.transaction import Transaction


class SqliteStore(CheckedStore[Transaction]):
    """A store in one file; implements `Store` and `Maintenance`."""

    _journals, _log, _lookups, _open_tables = journals, recovery_log, lookups, Tables
    _sections = verification.SECTIONS
    lossy = None  # no property: every protected action reads it

    def __init__(
        self,
        path: str | Path,
        *,
        clock: Clock | None = None,
        lock_timeout_seconds: float = 5.0,
        migrations: Sequence[str] | None = None,
    ) -> None:
        self._clock = clock or SystemClock()
        self._files = Database(path, self._clock, lock_timeout_seconds, migrations or schema.migrations())
        self._migrated = self._files.migrated
        self._damaged = claims.DamagedRuns(self._files)
        self._sessions = Sessions(self._files, self._clock, self._damaged)

    @property
    def path(self) -> Path:
        """Return the path of the database."""
        return self._files.paths.database

    @property
    def url(self) -> str:
        """Return the URL, safe to print."""
        return f"sqlite:///{quote(os.fsencode(self.path))}"

    @property
    def identity(self) -> str:
        """Return the empty string: `renew_session` checks instead that the file is still the same."""
        return ""

    def now_ms(self) -> int:
        """Return the wall clock of this host."""
        self._files.require()
        return self._clock.now_ms()

    def _require(self) -> None:
        self._files.require()

    def _read(self, work: Callable[[Transaction], Answer]) -> Answer:
        return self._files.read(work)

    def _write(self, work: Callable[[Transaction], Answer]) -> Answer:
        return self._files.write(work)

    def commit(self, batch: Sequence[Commit]) -> list[Verdict]:
        """Append to many runs in one transaction."""
        try:
            return self._files.write(partial(commits.commit, batch=batch))
        except (TypeError, ValueError, OverflowError) as error:
            raise BadRecord(f"SQLite cannot take a value of the batch: {error}") from error

    def salvage(self, run: str, epoch: int) -> RunRow:
        """Cut a damaged journal back to its last good prefix."""
        return salvage.salvage(self._files, run, epoch)

    def _create(self, tx: Transaction, new: Sequence[NewRun], session: str | None) -> Created:
        if session is not None:
            claims.get_session(tx, session, self._clock)
        return claims.create(tx, new, session)

    def _claim(self, session: str, limit: int, wanted: Wanted) -> Claims:
        def peek(tx: Transaction) -> Claims:
            claims.get_session(tx, session, self._clock)
            return claims.peek(tx, wanted)

        # Read before joining the writers' queue: an idle worker must not slow down the writers.
        seen = self._files.read(peek)
        if limit == 0 or seen.next_due_ms is None or seen.next_due_ms > self._clock.now_ms():
            return seen

        def work(tx: Transaction, damaged: str) -> Claims:
            owner = claims.get_session(tx, session, self._clock)
            return claims.claim(tx, owner, limit, wanted, damaged)

        return self._damaged.write(work, lambda tx: claims.numbers_waiting(tx, wanted))

    def wait_for_work(self, timeout_seconds: float) -> bool:
        """Block until something may have happened, or until the timeout."""
        self._files.require()
        with self._files.expected():
            woken = self._files.wake.wait(timeout_seconds)
        if woken and self._files.wake.take_death():
            with suppress(StoreUnavailable):  # the next poll of any worker ends it
                self.end_sessions(None, Cause.DIED)
        return woken

    def wait_for_output(self, timeout_seconds: float) -> bool:
        """Block until output may have come or a run may have ended, or until the timeout."""
        return self._files.wait_for_output(timeout_seconds)

    def close(self) -> None:
        """Close files and connections."""
        self._files.close()

    # Maintenance --------------------------------------------------------------------------------

    def stats(self) -> Stats:
        """Measure the store."""
        return self._files.read(lambda tx: maintenance.measure(tx, self._files.paths))

    def backup(self, path: str | Path, progress: Progress | None = None) -> backups.Backup:
        """Copy the store to a file while it is in use, and verify the copy."""
        return backups.back_up(self._files, Path(path), progress)

    def _prune(self, limits: Limits) -> Pruned:
        return maintenance.prune(self._files, limits, self._clock.now_ms() - run_rules.BLOB_GRACE_MS)
