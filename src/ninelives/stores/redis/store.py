"""The store for several machines on Redis or Valkey: one server, any processes on any hosts.

`ninelives.store.Store` says what each method means; `server.pool` how it survives lost connections;
`stores.shared` and `core` what happens to rows; `tables` how the server's rows get there.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence

from ninelives.core.clock import Clock
from ninelives.core.model.commit import Commit, Verdict
from ninelives.core.model.run import Claims, NewRun, RunRow
from ninelives.core.rules import run_rules
from ninelives.store import Pruned, Stats
from ninelives.stores.redis import claims, commits, journals, lookups, maintenance, pruning, recovery_log
from ninelives.stores.redis.server import schema
from ninelives.stores.redis.server.address import parse
from ninelives.stores.redis.server.pool import Pool
from ninelives.stores.redis.server.wakeups import WakeupList
from ninelives.stores.redis.sessions import Sessions
from ninelives.stores.redis.tables import Tables
from ninelives.stores.redis.transaction import Transaction
from ninelives.stores.shared import inbound
from ninelives.stores.shared.checked_store import Answer, Created, ServerStore
from ninelives.stores.shared.maintenance import Limits
from ninelives.stores.shared.selection import Wanted


class RedisStore(ServerStore[Transaction]):
    """A store under one prefix of a server; implements `Store` and `Maintenance`."""

    _journals, _log, _lookups, _open_tables = journals, recovery_log, lookups, Tables
    _sections = maintenance.SECTIONS
    _most = 2**31
    _pool: Pool

    def __init__(self, url: str, *, clock: Clock | None = None, known: str = "") -> None:
        self._address = parse(url)
        self._clock = clock
        self._pool = Pool(self._address, clock)
        self._pool.begin()
        if known:
            self._pool.require_same(known.encode())  # before a new one could be created
        self._migrated = self._pool.read(schema.open_version)
        names = self._pool.names
        (identity,) = self._pool.read(lambda tx: tx.ask([(b"HGET", names.store, b"id")]))
        names.identity = identity or b""
        self._sessions = Sessions(self._pool)
        self._is_closed = threading.Event()
        self._workers = WakeupList(names.work, names.tag, self._pool.connect)
        self._readers = WakeupList(names.output, names.tag, self._pool.connect)

    @property
    def url(self) -> str:
        """Return the URL without secrets."""
        return self._address.shown

    @property
    def identity(self) -> str:
        """Return the store's id, given when it was created."""
        return self._pool.names.identity.decode()

    @property
    def lossy(self) -> str | None:
        """Why the server may lose what it acknowledges, if the URL accepts that; as it last reported."""
        return self._pool.server.lossy

    def _read(self, work: Callable[[Transaction], Answer]) -> Answer:
        return self._pool.read(work)

    def _write(self, work: Callable[[Transaction], Answer]) -> Answer:
        return self._pool.write(work)

    def _create(self, tx: Transaction, new: Sequence[NewRun], session: str | None) -> Created:
        return claims.create(tx, new, session)

    def _claim(self, session: str, limit: int, wanted: Wanted) -> Claims:
        claimed = self._pool.write(lambda tx: claims.claim(tx, session, limit, wanted))
        self._pool.lineage.claimed(claimed.runs)
        return claimed

    def salvage(self, run: str, epoch: int) -> RunRow:
        """Cut a damaged journal back to its last good prefix."""
        return self._write(lambda tx: inbound.salvage(tx, Tables(tx), run, epoch))

    def commit(self, batch: Sequence[Commit]) -> list[Verdict]:
        """Append to many runs in one transaction."""
        self._pool.require()
        return commits.commit(self._pool, batch, self._clock.now_ms() if self._clock is not None else None)

    # Waiting ------------------------------------------------------------------------------------

    def wait_for_work(self, timeout_seconds: float) -> bool:
        """Block until something may have happened, or until the timeout."""
        self._pool.require()
        return self._workers.wait(max(0.0, timeout_seconds))

    def wait_for_output(self, timeout_seconds: float) -> bool:
        """Block until output may have come or a run may have ended, or until the timeout."""
        self._pool.require()
        return self._readers.wait(max(0.0, timeout_seconds))

    def close(self) -> None:
        """Close the connections."""
        if self._is_closed.is_set() or not self._pool.is_ours:
            return  # connections inherited by fork belong to the parent
        self._is_closed.set()
        for part in (self._workers, self._readers, self._pool):
            part.close()

    # Maintenance --------------------------------------------------------------------------------

    @property
    def risks(self) -> Mapping[str, str]:
        """Return what is unsafe about the server, as reported when the newest connection was opened."""
        return self._pool.server.risks

    def stats(self) -> Stats:
        """Measure the store."""
        return self._pool.read(maintenance.measure)

    def _prune(self, limits: Limits) -> Pruned:
        return pruning.prune(self._pool, limits, run_rules.BLOB_GRACE_MS)
