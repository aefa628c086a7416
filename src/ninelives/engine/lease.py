"""The lease of this process's session. A dedicated thread renews it, so a busy event loop keeps it.

No body begins after the local boot-time clock of (last renewal sent + lease - margin): from then on, other
workers may consider this one dead. A process that was stopped or suspended detects that with one comparison,
before it begins anything. If the lease is lost, `lost` is called once, on the event loop. If we die here, the
lease expires.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import Context
from functools import partial
from typing import Any

from ninelives.core.clock import Clock
from ninelives.core.errors import LeaseLost, NineLivesError, StoreUnavailable
from ninelives.core.model.counter import Counter, StepCounts, no_steps
from ninelives.core.rules import counting
from ninelives.store import Store

_MARGIN_SHARE, _MARGIN_MOST_MS = 0.1, 1000
"""Safety margin of a lease, for drift between the store's clock and ours."""
_RENEWALS_PER_LEASE, _TRIES_PER_LEASE = 3, 10


class Endless:
    """The lease of an execution without a session: it never expires."""

    until_ms = float("inf")
    since: tuple[int, int] | None = None

    async def renewed(self) -> None:
        """Return at once."""

    def steps_of(self, _: str) -> StepCounts:
        """Return a list that nothing reads."""
        return no_steps()


ENDLESS = Endless()


class Lease:
    """The lease of one session. `until_ms`: nothing may begin from then on, by the boot-time clock.

    `since` is when it began, by the store's clock and by the steady clock that confirms it.
    """

    since: tuple[int, int] | None = None

    def __init__(
        self,
        store: Store,
        clock: Clock,
        session: str,
        lease_ms: int,
        *,
        sent_ms: int,
        lost: Callable[[NineLivesError], None],
    ) -> None:
        self._store, self._clock, self._session, self.lost = store, clock, session, lost
        self._lease_ms = lease_ms
        self._begin_ms = lease_ms - min(lease_ms * _MARGIN_SHARE, _MARGIN_MOST_MS)
        # From when the request was sent, not answered: the store counts from some moment between the two.
        self.until_ms: float = sent_ms + self._begin_ms
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[asyncio.Future[None], None] = {}  # ordered: the longest wait ends first
        self._steps: dict[str, StepCounts] = {}
        self._learning: set[asyncio.Task[None]] = set()
        self.halts = 0
        """The version of the document `halts` that this process has learnt from a renewal."""
        self.learn: Callable[[int], Coroutine[Any, Any, None]] = _nothing
        """Awaited on the event loop with a new version of `halts`, before the lease is extended here."""
        self._stopped, self._changing = threading.Event(), threading.Lock()
        self._thread = threading.Thread(target=self._renew_always, name="ninelives-lease", daemon=True)
        self._thread.start()

    async def renewed(self) -> None:
        """Wait until bodies may begin again. Never returns once the lease is lost."""
        # A loop: the renewal that wakes us may be old again by the time we run (a suspended machine).
        while self._clock.boot_ms() >= self.until_ms:
            news: asyncio.Future[None] = self._loop.create_future()
            self._waiting[news] = None
            try:
                await news
            finally:
                self._waiting.pop(news, None)

    def steps_of(self, agent: str, /) -> StepCounts:
        """Return the plain integers that count what this session does for an agent."""
        return self._steps.setdefault(agent, no_steps())

    @property
    def counts(self) -> list[Counter]:
        """What this session has done since it began. It rides on each renewal, and on the session's end."""
        return counting.of_steps(self._steps.copy())

    def stop(self) -> None:
        """Stop renewing: nothing begins from now on, and `lost` is not called."""
        with self._changing:
            self.until_ms = 0
            self._stopped.set()

    def _renew_always(self) -> None:
        pause_seconds = self._lease_ms / 1000 / _RENEWALS_PER_LEASE
        while not self._stopped.wait(pause_seconds):
            sent_ms = self._clock.boot_ms()
            try:
                # On the lease's own thread: a body that blocks the
                # event loop must not cost the session its lease.
                halts = self._store.renew_session(self._session, counts=self.counts).halts
            except StoreUnavailable:
                # Retry sooner. If the lease expires meanwhile, a later renewal reports it.
                pause_seconds = self._lease_ms / 1000 / _TRIES_PER_LEASE
                continue
            except NineLivesError as error:
                self._end(error)
                return
            except BaseException as error:  # noqa: BLE001 (after any error, nothing renews the lease any more)
                self._end(LeaseLost(f"the lease cannot be renewed: {error!r}", remedy="End this process"))
                return
            pause_seconds = self._lease_ms / 1000 / _RENEWALS_PER_LEASE
            if halts == self.halts:
                self._extend(sent_ms)
            else:
                self._on_loop(partial(self._learn, halts, sent_ms))

    def _extend(self, sent_ms: int) -> None:
        with self._changing:
            # Stopped during the call: `until_ms` is 0 and must stay so.
            if self._stopped.is_set():
                return
            self.until_ms = max(self.until_ms, sent_ms + self._begin_ms)
        # The loop is called only if something waits: an idle worker has no wake-up per renewal.
        if self._waiting:
            self._on_loop(self._wake)

    def _learn(self, halts: int, sent_ms: int) -> None:
        """Extend the lease once the new halts are known: a process that was stopped begins nothing before."""

        def learnt(task: asyncio.Task[None]) -> None:
            self._learning.discard(task)
            # If it failed, the next renewal tries again; without one, the lease runs out.
            if not task.cancelled() and task.exception() is None:
                self.halts = halts
                self._extend(sent_ms)

        task = self._loop.create_task(self.learn(halts), context=Context())
        self._learning.add(task)
        task.add_done_callback(learnt)

    def _end(self, error: NineLivesError) -> None:
        if not self._stopped.is_set():
            self.until_ms = 0
            self._on_loop(lambda: self._report(error))

    def _report(self, error: NineLivesError) -> None:
        if not self._stopped.is_set():  # it may have been stopped since
            self.lost(error)

    def _wake(self) -> None:
        for news in self._waiting:
            if not news.done():
                news.set_result(None)

    def _on_loop(self, work: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # the loop is closed: nothing can begin on it
            self._loop.call_soon_threadsafe(work)


async def _nothing(_: int) -> None:
    """Do nothing: nothing is executed under this lease."""
