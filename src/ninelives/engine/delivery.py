"""The order in which a run's code learns of outcomes: the journal's, on replay and live alike.

Invariants:
- Outcomes are delivered one at a time, in the order of the journal, and the next one only when the run's
  code has come to rest: no callback of it is ready on the event loop, and none of its threads is running.
  So whoever was first the first time is first again: gather's first failure, races, cancellations.
- No fresh body starts while a recorded outcome can still be delivered.

A run with one branch and nothing recorded needs none of this and pays nothing.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Callable
from contextvars import Context

_UNSEEN_ROUNDS = 25  # without a look at the loop's queue (uvloop): this many idle rounds count as rest


class Delivery:
    """Delivers outcomes to one run's code."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        is_ours: Callable[[Context], bool],
        is_alone: Callable[[], bool],
    ) -> None:
        self._loop, self._is_ours, self._is_alone = loop, is_ours, is_alone
        self._recorded: list[tuple[int, asyncio.Future[None]]] = []
        self._live: deque[asyncio.Future[None]] = deque()
        self._fresh: deque[asyncio.Future[None]] = deque()
        self._is_scheduled = False
        self._idle_rounds = 0
        self.running_threads: set[int] = set()

    async def recorded(self, seq: int) -> None:
        """Wait until the recorded outcome at this place is next."""
        turn = self._loop.create_future()
        heapq.heappush(self._recorded, (seq, turn))
        self.look()
        await turn

    async def live(self) -> None:
        """Wait until an outcome that has just become known is next. Call in the order of the journal."""
        if self._is_alone() and not (self._live or self._recorded):
            return
        turn = self._loop.create_future()
        self._live.append(turn)
        self.look()
        await turn

    async def fresh(self) -> None:
        """Wait until a body may start: nothing recorded can be delivered any more."""
        turn = self._loop.create_future()
        self._fresh.append(turn)
        self.look()
        await turn

    @property
    def has_recorded(self) -> bool:
        """Tell whether somebody waits for a recorded outcome."""
        return any(not turn.done() for _, turn in self._recorded)

    def look(self) -> None:
        """Look soon whether the run has come to rest."""
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._check)

    def _check(self) -> None:
        self._is_scheduled = False
        if self.running_threads:
            return  # the next call of the last one makes us look again
        if not self._is_at_rest():
            self.look()
            return
        if self._next_of_recorded() or self._next_of(self._live):
            self.look()
            return
        while self._next_of(self._fresh):
            pass

    def _next_of_recorded(self) -> bool:
        while self._recorded:
            _, turn = heapq.heappop(self._recorded)
            if not turn.done():
                turn.set_result(None)
                return True
        return False

    def _next_of(self, queue: deque[asyncio.Future[None]]) -> bool:
        while queue:
            turn = queue.popleft()
            if not turn.done():  # cancelled meanwhile by the run's own code
                turn.set_result(None)
                return True
        return False

    def _is_at_rest(self) -> bool:
        ready = getattr(self._loop, "_ready", None)
        if ready is None:
            self._idle_rounds = (self._idle_rounds + 1) % _UNSEEN_ROUNDS
            return self._idle_rounds == 0
        return not any(
            not handle._cancelled and self._is_ours(handle._context)  # noqa: SLF001
            for handle in ready
        )
