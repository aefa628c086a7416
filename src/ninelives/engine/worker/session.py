"""A session of this process: registered, renewed, and ended when no worker uses it any more.

A worker that ends without owning any run leaves its session to the next worker of its runtime, because
registering and ending a session takes longer than a short run. If we die here, the session owns no run, so
its end costs no run a life.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress

from ninelives.core.clock import Clock, boot_reading
from ninelives.core.errors import NineLivesError
from ninelives.core.model.session import Cause, NewSession
from ninelives.engine.lease import Lease
from ninelives.engine.machine import host, machine
from ninelives.engine.spec.registry import code_version
from ninelives.engine.worker.event_loop import StoreCaller
from ninelives.store import Store

SPARE_SECONDS = 1.0
"""How long an idle session waits for the next worker before it is ended."""


class OwnSession:
    """One session of this process. `lease` is set once the session has begun."""

    lease: Lease

    def __init__(
        self,
        store: Store,
        calls: StoreCaller,
        clock: Clock,
        lease_ms: int,
        *,
        name: str = "",
        keeper: str = "",
    ) -> None:
        self._store, self._calls, self._clock = store, calls, clock
        self.lease_ms, self._keeper = lease_ms, keeper
        self.id = name or f"{machine()}-{os.getpid()}-{secrets.token_hex(4)}"
        self.agents: tuple[str, ...] = ()
        self.has_begun = False

    async def begin(self, agents: Sequence[str], lost: Callable[[NineLivesError], None]) -> None:
        """Register the session, or reuse that of an earlier worker; `lost` is called with a lost lease."""
        if self.has_begun:
            # The lease outlives the worker that began it; only the current one must learn of its loss.
            self.lease.lost = lost
            return
        # Before the request: the store's lease begins at some moment after this one.
        sent_ms, self.agents = self._clock.boot_ms(), tuple(sorted(agents))
        _, steady_ms = boot_reading(self._clock)
        new = NewSession(
            id=self.id,
            host=host(),
            pid=os.getpid(),
            code=code_version(agents),
            lease_ms=self.lease_ms,
            agents=self.agents,
            keeper=self._keeper,
        )
        try:
            registered = await self._calls.call(lambda store: store.register_session(new))
        except asyncio.CancelledError:
            await self._end()  # nothing would renew it
            raise
        self.lease = Lease(self._store, self._clock, self.id, self.lease_ms, sent_ms=sent_ms, lost=lost)
        self.lease.since = registered.started_ms, steady_ms
        self.lease.halts = registered.halts
        self.has_begun = True

    def serves(self, agents: Sequence[str]) -> bool:
        """Return whether a worker for these agents may use this session."""
        # The session's row names its agents and their code
        # (`register_session`): other agents need another one.
        return self.lease.until_ms > self._clock.boot_ms() and self.agents == tuple(sorted(agents))

    async def end(self) -> None:
        """Stop renewing the session and end it in the store, which releases the runs it still owns."""
        # First: nothing may begin for a session that is about to give its runs to others.
        self.lease.stop()
        await self._end()

    async def _end(self) -> None:
        counts = {self.id: self.lease.counts} if self.has_begun else None
        with suppress(NineLivesError):  # then its lock or its lease shows that it has ended
            await asyncio.to_thread(self._store.end_sessions, [self.id], Cause.STOPPED, counts=counts)


class IdleSession:
    """Keeps a session for the next worker of a runtime, for SPARE_SECONDS."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._kept: OwnSession | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._ending: set[asyncio.Task[None]] = set()

    def take(self, agents: Sequence[str]) -> OwnSession | None:
        """Return the kept session, if it serves these agents."""
        kept = self._kept
        if kept is None or not kept.serves(agents):
            return None
        self._forget()
        return kept

    async def keep(self, session: OwnSession) -> None:
        """Keep a session that owns no run; if another is kept already, end this one."""
        if self._kept is not None:
            await session.end()
            return
        session.lease.lost = lambda _: None  # no worker uses it: a lost lease has no consequence
        self._kept = session
        self._timer = self._loop.call_later(SPARE_SECONDS, self._expire)

    async def close(self) -> None:
        """End the kept session, and wait for sessions that are being ended."""
        self._expire()
        if self._ending:
            await asyncio.wait(self._ending)

    def _forget(self) -> None:
        self._kept = None
        if self._timer is not None:
            self._timer.cancel()

    def _expire(self) -> None:
        if self._kept is not None:
            task = self._loop.create_task(self._kept.end())
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)
        self._forget()
