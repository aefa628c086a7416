"""A worker: one session that claims runs, executes them, and renews its lease.

If the lease is lost, every execution is sealed at once: nothing more begins, nothing more is written.
There is no drain: a worker that is told to stop, and one that is killed, leave the same state behind.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress

from ninelives.core.errors import LeaseLost, NineLivesError, StoreUnavailable
from ninelives.core.model import Cause, NewSession, Run
from ninelives.engine.executor import Executor
from ninelives.engine.registry import AGENTS
from ninelives.store import Store

POLL_SECONDS = 1.0
"""How often a worker looks for the dead and for work that nobody woke it for."""


class Worker:
    """Claims and executes runs, as one session."""

    def __init__(self, store: Store, executor: Executor, lease_seconds: float, *, keeper: str = "") -> None:
        self._store, self._executor, self._lease_seconds = store, executor, lease_seconds
        self._keeper = keeper
        self._session: str | None = None
        self._woken = asyncio.Event()
        self._tasks: dict[asyncio.Task[None], str] = {}
        self._failure: BaseException | None = None
        self._renewing: asyncio.Task[None] | None = None

    def wake(self) -> None:
        """Look for work now."""
        self._woken.set()

    async def work(
        self,
        concurrency: int,
        *,
        agents: Callable[[], Sequence[str]],
        until: Callable[[], bool],
        only: str | None = None,
    ) -> None:
        """Work until the condition holds, which is asked whenever something has happened.

        Raises LeaseLost; what the store raised.
        """
        await self._begin()
        try:
            while not until():
                self._woken.clear()
                claimed, next_due_ms = await self._claim(concurrency, agents, only)
                if self._failure is not None:
                    raise self._failure
                if not claimed and not until():
                    await self._rest(next_due_ms)
            if self._failure is not None:
                raise self._failure
        finally:
            await self._end()

    @property
    def is_idle(self) -> bool:
        """Tell whether nothing is being executed."""
        return not self._tasks

    async def _begin(self) -> None:
        self._session = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
        new = NewSession(
            id=self._session,
            host=socket.gethostname(),
            pid=os.getpid(),
            lease_ms=int(self._lease_seconds * 1000),
            keeper=self._keeper,
        )
        self._store.end_sessions(None, Cause.DIED)
        self._store.register_session(new)
        self._renewing = asyncio.create_task(self._renew())

    async def _end(self) -> None:
        if self._renewing is not None:
            self._renewing.cancel()
        for execution in list(self._executor.executions.values()):
            execution.seal(LeaseLost("this worker has stopped", run=execution.run.id))
        if self._tasks:
            await asyncio.wait(self._tasks)
        if self._session is not None:
            with suppress(NineLivesError):
                await asyncio.to_thread(self._store.end_sessions, [self._session], Cause.STOPPED)

    async def _claim(
        self, concurrency: int, agents: Callable[[], Sequence[str]], only: str | None
    ) -> tuple[tuple[Run, ...], int | None]:
        free = concurrency - len(self._tasks)
        if free <= 0 or self._session is None:
            return (), None
        names = agents()
        queues = sorted({AGENTS[name].queue for name in names})
        limits = dict.fromkeys(names, free)
        host = socket.gethostname()
        try:
            claims = self._store.claim_runs(self._session, free, limits, queues=queues, host=host, only=only)
        except StoreUnavailable:
            return (), None
        self._executor.load(claims.runs)
        for run in claims.runs:
            task = asyncio.create_task(self._executor.execute(run))
            self._tasks[task] = run.id
            task.add_done_callback(self._done)
        return claims.runs, claims.next_due_ms

    def _done(self, task: asyncio.Task[None]) -> None:
        del self._tasks[task]
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failure = self._failure or error
        self._woken.set()

    async def _rest(self, next_due_ms: int | None) -> None:
        seconds = POLL_SECONDS
        if next_due_ms is not None:
            seconds = min(seconds, max(0.0, (next_due_ms - self._store.now_ms()) / 1000))
        try:
            async with asyncio.timeout(seconds):
                await self._woken.wait()
        except TimeoutError:
            self._executor.newsroom.hear()
            with suppress(StoreUnavailable):
                await asyncio.to_thread(self._store.end_sessions, None, Cause.DIED)

    async def _renew(self) -> None:
        while self._session is not None:
            await asyncio.sleep(self._lease_seconds / 3)
            try:
                await asyncio.to_thread(self._store.renew_session, self._session)
            except StoreUnavailable:
                continue  # the lease goes on running out; if it does, the next renewal says so
            except NineLivesError as error:
                self._failure = error
                for execution in list(self._executor.executions.values()):
                    execution.seal(LeaseLost(error.what, run=execution.run.id))
                self._woken.set()
                return
