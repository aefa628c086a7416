"""The order in which a run's code learns of outcomes: the journal's, on replay and live alike.

Invariants:
- Outcomes are delivered one at a time, in the order of the journal, and the next one only when the run's
  code has come to rest: no callback of it is ready on the event loop, none of its threads is running, and no
  body that it has cancelled is still on its way out.
  So whoever was first the first time is first again: gather's first failure, races, cancellations.
- No fresh body starts while a recorded outcome can still be delivered.
- Code that waits for timers or sockets of its own (`asyncio.sleep`) is waited for while an outcome recorded
  earlier is not asked for yet, about as long as it took then: code that was changed may never ask.

A run with one branch and nothing recorded needs none of this and pays nothing. A single branch that asks for
what is next in the journal, while nothing else of its run is ready, is told at once: the run is at rest but
for itself. It returns to the event loop now and then, for the sake of others.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Callable
from contextvars import Context
from functools import partial
from typing import TYPE_CHECKING

from ninelives.core.replay import Replay
from ninelives.engine.context import is_code_of
from ninelives.engine.ready import has_foreign, is_plainly_idle, round_of

if TYPE_CHECKING:
    from ninelives.engine.execution import Execution

FOREIGN_SECONDS = 0.05
"""How soon we look again whether a run still waits for timers or sockets of its own."""
AT_ONCE = 64
"""How many recorded outcomes a single branch is told before others on the event loop have their turn."""
SLACK_SECONDS = 1.0
"""How much longer than it took then we wait for an outcome to be asked for."""


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
        execution: Execution,
        is_alone: Callable[[], bool],
        replay: Replay,
    ) -> None:
        self._loop, self._execution, self._is_alone, self._replay = loop, execution, is_alone, replay
        self._round = round_of(loop)
        self._recorded: list[tuple[int, int, asyncio.Future[None]]] = []
        self._live: deque[Turn] = deque()
        self._fresh: deque[asyncio.Future[None]] = deque()
        self._is_scheduled = False
        self._at_once = 0
        self.running: set[object] = set()
        self.at_rest: tuple[Callable[[], None], ...] = ()
        self._later: asyncio.TimerHandle | None = None
        self._told_ms: int | None = None
        self._patience: tuple[int, float] | None = None

    async def recorded(self, seq: int, at_ms: int | None = None) -> None:
        """Wait until the recorded outcome at this place is next; `at_ms` is when it was recorded."""
        if not self._is_next_anyway(seq):
            turn = self._loop.create_future()
            heapq.heappush(self._recorded, (seq, id(turn), turn))  # one that was cancelled may ask again
            self.look()
            await turn
        if at_ms is not None:
            self._told_ms = at_ms

    def _is_next_anyway(self, seq: int) -> bool:
        """Tell whether a single branch asks for the next outcome, and the run is at rest but for it."""
        execution = self._execution
        if self.has_anybody or self._fresh or self.running or not execution.has_one_branch:
            return False
        earliest = self._replay.earliest()
        if earliest is not None and earliest.seq < seq:
            return False  # somebody may ask for that one yet
        self._at_once = (self._at_once + 1) % AT_ONCE
        return self._at_once != 0 and is_plainly_idle(self._loop, execution)

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
            self._round.ask(self._loop, self)

    def look_later(self) -> None:
        """Look again in a while: the run's code waits for something of its own."""
        if self._later is None:
            self._later = self._loop.call_later(FOREIGN_SECONDS, self._look_now, context=Context())

    def _look_now(self) -> None:
        self._later = None
        self.look()

    def check(self, busy: frozenset[object]) -> None:
        """Tell the next outcome, unless something of the run is ready or running."""
        self._is_scheduled = False
        if self.running:
            return  # whoever is running makes us look again
        if self._execution in busy:
            self.look()
            return
        if self._replay.left and (self._recorded or self._fresh) and self._is_early():
            self.look_later()
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
        if self.at_rest and not has_begun and not self._live:
            for consider in self.at_rest:
                consider()

    def _is_early(self) -> bool:
        """Tell whether an outcome recorded earlier may still be asked for, by code that waits for a timer."""
        asked = min((seq for seq, _, turn in self._recorded if not turn.done()), default=None)
        earliest = self._replay.earliest()
        if earliest is None or (asked is not None and asked < earliest.seq) or not self.has_foreign():
            return False
        while (earliest := self._replay.earliest()) is not None:
            if asked is not None and asked < earliest.seq:
                return False
            now = self._loop.time()
            if self._patience is None or self._patience[0] != earliest.seq:
                began_ms = self._told_ms if self._told_ms is not None else self._replay.began_ms
                took_seconds = max(0, earliest.at_ms - began_ms) / 1000
                self._patience = (earliest.seq, now + took_seconds + SLACK_SECONDS)
            if now < self._patience[1]:
                return True
            self._told_ms = earliest.at_ms
            self._replay.pass_by()
        return False

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
        return has_foreign(self._loop, partial(is_code_of, self._execution))
