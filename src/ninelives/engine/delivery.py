"""The order in which a run's code learns of outcomes: the journal's, on replay and live alike.

Invariants:
- Outcomes are delivered one at a time, in the order of the journal, and the next one only when the run's
  code has come to rest: no callback of it is ready on the event loop, none of its threads is running, and no
  body that it has cancelled is still on its way out.
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

from ninelives.engine.ready import has_foreign, is_at_rest


class Turn:
    """The place of one live outcome in the order; ready once it may be told."""

    __slots__ = ("is_ready", "told")

    def __init__(self, told: asyncio.Future[None]) -> None:
        self.told, self.is_ready = told, False

    def withdraw(self) -> None:
        """Give the place up."""
        self.told.cancel()


class Delivery:
    """Delivers outcomes to one run's code."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        is_ours: Callable[[Context], bool],
        is_alone: Callable[[], bool],
    ) -> None:
        self._loop, self._is_ours, self._is_alone = loop, is_ours, is_alone
        self._recorded: list[tuple[int, int, asyncio.Future[None]]] = []
        self._live: deque[Turn] = deque()
        self._fresh: deque[asyncio.Future[None]] = deque()
        self._is_scheduled = False
        self.running: set[object] = set()
        self.at_rest: Callable[[], None] | None = None

    async def recorded(self, seq: int) -> None:
        """Wait until the recorded outcome at this place is next."""
        turn = self._loop.create_future()
        heapq.heappush(self._recorded, (seq, id(turn), turn))  # one that was cancelled may ask again
        self.look()
        await turn

    def reserve(self) -> Turn:
        """Take the next place in the order of live outcomes: call it when the outcome is written."""
        turn = Turn(self._loop.create_future())
        self._live.append(turn)
        return turn

    def reserve_first(self) -> Turn:
        """Take the place before all others: for who was alone when it wrote, and is no more."""
        turn = Turn(self._loop.create_future())
        self._live.appendleft(turn)
        return turn

    def is_out(self, task: object) -> None:
        """Note that a body is out; if it was cancelled, the run has only now come to rest."""
        if task in self.running:
            self.running.discard(task)
            self.look()

    async def live(self, turn: Turn, *, is_own: bool = True) -> None:
        """Wait until an outcome that may be told now is next.

        One that the only branch itself waits for is told at once; a timer's is not its own.
        """
        turn.is_ready = True
        if is_own and self._live[0] is turn and self._is_alone():
            self._live.popleft()
            return
        self.look()
        try:
            await turn.told
        finally:
            self.look()

    async def fresh(self) -> None:
        """Wait until a body may start: nothing recorded can be delivered any more."""
        turn = self._loop.create_future()
        self._fresh.append(turn)
        self.look()
        await turn

    @property
    def has_recorded(self) -> bool:
        """Tell whether somebody waits for a recorded outcome."""
        return bool(self._recorded) and any(not turn.done() for *_, turn in self._recorded)

    @property
    def has_anybody(self) -> bool:
        """Tell whether somebody may be waiting for an outcome, recorded or live."""
        return bool(self._recorded or self._live)

    def look(self) -> None:
        """Look soon whether the run has come to rest."""
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._check)

    def _check(self) -> None:
        self._is_scheduled = False
        if self.running:
            return  # whoever is running makes us look again
        if not is_at_rest(self._loop, self._is_ours):
            self.look()
            return
        if self._next_of_recorded() or self._next_of_live():
            self.look()
            return
        has_begun = False
        while self._fresh:
            turn = self._fresh.popleft()
            if not turn.done():  # else cancelled meanwhile by the run's own code
                turn.set_result(None)
                has_begun = True
        if self.at_rest is not None and not has_begun and not self._live:
            self.at_rest()

    def _next_of_recorded(self) -> bool:
        while self._recorded:
            *_, turn = heapq.heappop(self._recorded)
            if not turn.done():
                turn.set_result(None)
                return True
        return False

    def _next_of_live(self) -> bool:
        while self._live:
            turn = self._live[0]
            if turn.told.done():
                self._live.popleft()
            elif turn.is_ready:
                self._live.popleft()
                turn.told.set_result(None)
                return True
            else:
                return False  # not durable yet: nobody behind it may be told before it
        return False

    def has_foreign(self) -> bool:
        """Tell whether the run's own code waits for a timer or a socket, outside of any body."""
        return has_foreign(self._loop, self._is_ours)
