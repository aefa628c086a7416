"""The store for several machines: one PostgreSQL database, any number of processes on any hosts.

`ninelives.store.Store` says what each method means; `server.pool` how it survives lost connections;
`stores.shared` and `core` what happens to rows; `tables` how the server's rows get there.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from ninelives.core.clock import Clock
from ninelives.core.model.commit import Commit, Verdict
from ninelives.core.model.run import Claims, NewRun, RunRow
from ninelives.core.model.session import Cause, NewSession, Session
from ninelives.core.rules import run_rules
from ninelives.store import Pruned, Stats
from ninelives.stores.postgres import claims, commits, journals, lookups, maintenance, recovery_log
from ninelives.stores.postgres.server import schema
from ninelives.stores.postgres.server.address import Address, parse
from ninelives.stores.postgres.server.death_watch import DeathWatch
from ninelives.stores.postgres.server.pool import Pool
from ninelives.stores.postgres.server.wakeups import Channel, Notifications
from ninelives.stores.postgres.sessions import Sessions
from ninelives.stores.postgres.tables import Tables
from ninelives.stores.postgres.transaction import LoneStatement, Transaction
from ninelives.stores.shared import inbound
from ninelives.stores.shared.checked_store import Answer, Created, ServerStore
from ninelives.stores.shared.maintenance import Limits
from ninelives.stores.shared.selection import Wanted


class PostgresStore(ServerStore[Transaction]):
    """A store in one schema of a database; implements `Store` and `Maintenance`."""

    _journals, _log, _lookups, _open_tables = journals, recovery_log, lookups, Tables
    _sections = maintenance.SECTIONS
    _sessions: Sessions
    _pool: Pool

    def __init__(self, url: str, *, clock: Clock | None = None, known: str = "") -> None:
        self._address: Address = parse(url)
        self._clock = clock
        self._pool = Pool(self._address, clock)
        self._migrated, self._pool.identity = self._pool.prepare(partial(schema.open_or_make, known=known))
        self._sessions = Sessions(self._pool, self._wake)
        self._deaths = DeathWatch(
            self._pool, self._sessions.ring, lambda: self.end_sessions(None, Cause.DIED)
        )
        self._lone = LoneStatement(self._pool.ask)
        self._waits_for_work = False
        self._work, self._output = (Channel(self._address.schema, name) for name in ("work", "output"))
        self._is_closed = threading.Event()
        door = self._pool.sql["open_door"].text
        self._workers = Notifications(self._work, self._pool.connect, door)
        self._readers = Notifications(self._output, self._pool.connect, door)

    @property
    def url(self) -> str:
        """Return the URL without secrets."""
        return self._address.shown

    @property
    def identity(self) -> str:
        """Return the store's id, given when its schema was created."""
        return self._pool.identity

    def _read(self, work: Callable[[Transaction], Answer]) -> Answer:
        return self._pool.read(work)

    def _peek(self, work: Callable[[Transaction], Answer]) -> Answer:
        return work(self._lone)

    def _write(self, work: Callable[[Transaction], Answer]) -> Answer:
        return self._pool.write(work, self._wake)

    def _create(self, tx: Transaction, new: Sequence[NewRun], session: str | None) -> Created:
        return claims.create(tx, new, session)

    def _claim(self, session: str, limit: int, wanted: Wanted) -> Claims:
        if wanted.only is None:
            # Read before we write: an idle worker must cost the server next to nothing.
            seen, now_ms = self._pool.read(lambda tx: claims.peek(tx, session, wanted))
            if limit == 0 or seen.next_due_ms is None or seen.next_due_ms > now_ms:
                return seen
        return self._pool.write(lambda tx: claims.claim(tx, session, limit, wanted))

    def salvage(self, run: str, epoch: int) -> RunRow:
        """Cut a damaged journal back to its last good prefix."""
        return self._write(lambda tx: inbound.salvage(tx, Tables(tx), run, epoch))

    def commit(self, batch: Sequence[Commit]) -> list[Verdict]:
        """Append to many runs in one transaction."""
        now_ms = None if self._clock is None else self._clock.now_ms()
        return commits.commit(self._pool, batch, now_ms, self._channels, self._wake)

    def register_session(self, new: NewSession) -> Session:
        """Begin a session and hold its lock."""
        session = super().register_session(new)
        self._watch()
        return session

    # Waiting ------------------------------------------------------------------------------------

    def wait_for_work(self, timeout_seconds: float) -> bool:
        """Block until something may have happened, or until the timeout."""
        self._waits_for_work = True
        self._watch()
        return self._wait(self._workers, timeout_seconds)

    def wait_for_output(self, timeout_seconds: float) -> bool:
        """Block until output may have come or a run may have ended, or until the timeout."""
        return self._wait(self._readers, timeout_seconds)

    def _wait(self, wake_ups: Notifications, timeout_seconds: float) -> bool:
        self._pool.require()
        if not self._pool.is_direct:  # LISTEN does not work through a pooler: the caller polls instead
            self._is_closed.wait(max(0.0, timeout_seconds))
            return False
        return wake_ups.wait(max(0.0, timeout_seconds))

    def close(self) -> None:
        """Close the connections."""
        if self._is_closed.is_set() or not self._pool.is_ours:
            return  # connections inherited by fork belong to the parent
        self._is_closed.set()
        for part in (self._deaths, self._workers, self._readers, self._sessions, self._pool):
            part.close()

    def _watch(self) -> None:
        """Watch for deaths once this object has a session and a waiting thread, in whichever order."""
        if self._waits_for_work and self._sessions.has_own:
            self._deaths.watch()

    def _channels(self, work: bool, output: bool) -> tuple[list[str], list[int]]:
        channels = [self._work] * work + [self._output] * (work or output)
        if not self._pool.is_direct:
            return [], []
        return [one.name for one in channels], [one.door for one in channels]

    def _wake(self, tx: Transaction) -> None:
        channels, doors = self._channels(tx.wakes, tx.emits)
        if channels:
            tx.do("wake", (channels, doors))

    # Maintenance --------------------------------------------------------------------------------

    @property
    def risks(self) -> Mapping[str, str]:
        """Return what is unsafe about the server, as reported when the newest connection was opened."""
        return self._pool.risks

    def stats(self) -> Stats:
        """Measure the store."""
        return self._pool.read(lambda tx: maintenance.measure(tx, self._address.schema))

    def _prune(self, limits: Limits) -> Pruned:
        return maintenance.prune(self._pool, limits, run_rules.BLOB_GRACE_MS)
