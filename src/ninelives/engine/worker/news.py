"""News for runs that are being executed: signals, answers, released keys, children's ends, controls.

The store's wake-ups say that something happened, not to which run. One read covers many executions, in a
thread: waiting executions at every wake-up, the others at most every CONTROL_SECONDS, because they only need
to learn of a request to stop. A lost wake-up costs one poll interval.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress

from ninelives.core.errors import NineLivesError
from ninelives.core.model.run import News
from ninelives.engine.run.execution import Execution
from ninelives.store import Store

CONTROL_SECONDS = 0.1
"""Minimum interval between reads for executions that do not wait."""


class NewsReader:
    """Reads news and delivers it to the executions of one executor."""

    def __init__(
        self, store: Store, loop: asyncio.AbstractEventLoop, executions: Mapping[str, Execution]
    ) -> None:
        self._store, self._loop, self._executions = store, loop, executions
        self._is_wanted = False
        self._reading: asyncio.Task[None] | None = None
        self._all_at = 0.0
        self.wakeups = 0
        """How many wake-ups have arrived."""
        self._later: asyncio.TimerHandle | None = None

    def on_wakeup(self) -> None:
        """Count a wake-up, and read the news."""
        self.wakeups += 1
        self.read()

    def read(self) -> None:
        """Read the news. Call it on the event loop, outside any run's context."""
        if not self._executions:
            return
        if self._reading is not None:
            # A read is under way, and may have missed this: one more follows it.
            self._is_wanted = True
        elif seen := self._seen():
            self._reading = self._loop.create_task(self._read(seen))

    async def _read(self, seen: dict[str, int]) -> None:
        try:
            while seen:
                # Before the read: a wake-up during it asks for another.
                self._is_wanted = False
                with suppress(NineLivesError):  # the next write reports it; the next wake-up reads again
                    self._deliver(await asyncio.to_thread(self._store.read_news, seen))
                seen = self._seen() if self._is_wanted else {}
        finally:
            self._reading = None

    def _deliver(self, found: Sequence[News]) -> None:
        for news in found:
            execution = self._executions.get(news.run.id)
            if execution is not None:
                execution.take_news(news)

    def _seen(self) -> dict[str, int]:
        now = self._loop.time()
        is_for_all = now - self._all_at >= CONTROL_SECONDS
        if is_for_all:
            self._all_at = now
        elif self._later is None:
            self._later = self._loop.call_later(self._all_at + CONTROL_SECONDS - now, self._catch_up)
        return {
            name: execution.latest.news
            for name, execution in self._executions.items()
            if is_for_all or execution.waits_for_news
        }

    def _catch_up(self) -> None:
        self._later = None
        self.read()
