"""The order in which a run's code learns of outcomes: the journal's, on replay and live alike.

Invariants:
- Outcomes are delivered one at a time, in the order of the journal, and the next one only when the run's
  code has come to rest: no callback of it is ready on the event loop, none of its threads is running, and no
  body that it has cancelled is still on its way out.
  So whoever was first the first time is first again: gather's first failure, races, cancellations.
- No fresh body starts while a recorded outcome can still be delivered.
- A call that has no record at its own place is given one by what it is only when the code is at rest, the
  earliest first and one at a time (`engine.identity`).
- The body of an effect starts only when no effect on record is unclaimed.
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
from typing import Any, Protocol, cast

from ninelives.core.journal.matching import Claimed, Start
from ninelives.core.journal.replay import Replay
from ninelives.engine.context import Running, is_code_of
from ninelives.engine.run import lookup
from ninelives.engine.run.lookup import StepLookup
from ninelives.engine.run.quiescence import has_foreign, is_plainly_idle, round_of

FOREIGN_SECONDS = 0.05
"""How soon we look again whether a run still waits for timers or sockets of its own."""
AT_ONCE = 64
"""How many recorded outcomes a single branch is told before others on the event loop have their turn."""
SLACK_SECONDS = 1.0
"""How much longer than it took then we wait for an outcome to be asked for."""
REFUSAL_SECONDS = 5.0
"""The same, before a run is stopped because an effect was not asked for."""


class ForeignThreads(Protocol):
    """Threads that the run's code brought along."""

    def is_at_rest(self) -> bool:
        """Return whether none of them is running."""


class Slot:
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
        execution: Running,
        is_alone: Callable[[], bool],
        replay: Replay,
    ) -> None:
        self._loop, self._execution, self._is_alone, self._replay = loop, execution, is_alone, replay
        self._round = round_of(loop)
        self._recorded: list[tuple[int, int, asyncio.Future[None]]] = []
        self._live: deque[Slot] = deque()
        self._fresh: deque[tuple[StepLookup | None, asyncio.Future[Claimed | None]]] = deque()
        self._seeking: list[tuple[StepLookup, asyncio.Future[Claimed | None]]] = []
        self._is_scheduled = False
        self._at_once = 0
        self.running: set[object] = set()
        self.at_rest: tuple[Callable[[], None], ...] = ()
        self._later: asyncio.TimerHandle | None = None
        self._told_ms: int | None = None
        self._patience: tuple[int, float] | None = None
        self.outside: ForeignThreads | None = None
        self.rests = 0
        """How often the run's code was found at rest."""
        self._refusal: tuple[int, float] | None = None
        self.told_seq = -1

    async def recorded(self, seq: int, at_ms: int | None = None) -> None:
        """Wait until the recorded outcome at this place is next; `at_ms` is when it was recorded."""
        if not self._is_next_anyway(seq):
            turn = self._loop.create_future()
            heapq.heappush(self._recorded, (seq, id(turn), turn))  # one that was cancelled may ask again
            self.look()
            await turn
            self._note_told()
        self.told_seq = max(self.told_seq, seq)
        if at_ms is not None:
            self._told_ms = at_ms

    def _is_next_anyway(self, seq: int) -> bool:
        """Tell whether a single branch asks for the next outcome, and the run is at rest but for it."""
        execution = self._execution
        if self.has_anybody or self._fresh or self._seeking or self.running or not execution.has_one_branch:
            return False
        earliest = self._replay.earliest()
        if earliest is not None and earliest.seq < seq:
            return False  # somebody may ask for that one yet
        self._at_once = (self._at_once + 1) % AT_ONCE
        return self._at_once != 0 and is_plainly_idle(self._loop, execution)

    def reserve(self) -> Slot:
        """Take the next place in the order of live outcomes: call it when the outcome is written."""
        turn = Slot(self._loop.create_future())
        self._live.append(turn)
        return turn

    def reserve_first(self) -> Slot:
        """Take the place before all others: for who was alone when it wrote, and is no more."""
        turn = Slot(self._loop.create_future())
        self._live.appendleft(turn)
        return turn

    def is_out(self, task: object) -> None:
        """Note that a body is out; if it was cancelled, the run has only now come to rest."""
        if task in self.running:
            self.running.discard(task)
            self.look()

    async def live(self, turn: Slot, *, is_own: bool = True) -> None:
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
            self._note_told()
        finally:
            self.look()

    def _note_told(self) -> None:
        """Note on the branch that is told here that the run's code has not come to rest since: for limits."""
        if self._execution.timers and hasattr(task := asyncio.current_task(), "told_at"):
            cast("Any", task).told_at = self.rests

    async def fresh(self) -> None:
        """Wait until a body may start: nothing recorded can be delivered any more."""
        await self._wait_fresh(None)

    async def begin(self, asking: StepLookup) -> None:
        """Wait until a body that was started before may start again: as if it were fresh."""
        await self._wait_fresh(asking)

    async def _wait_fresh(self, asking: StepLookup | None) -> None:
        turn: asyncio.Future[Claimed | None] = self._loop.create_future()
        self._fresh.append((asking, turn))
        self.look()
        await turn

    async def seek(self, asking: StepLookup) -> Claimed | None:
        """Return what a call claims by what it is, once the code is at rest; None when its body may start."""
        turn: asyncio.Future[Claimed | None] = self._loop.create_future()
        if lookup.claims_of(self._execution).earliest_match(asking.call) is None:
            self._fresh.append((asking, turn))  # what is unclaimed only grows less: it never has a match
        else:
            self._seeking.append((asking, turn))
        self.look()
        try:
            return await turn
        except asyncio.CancelledError:
            found = turn.result() if turn.done() and not turn.cancelled() else None
            if (
                isinstance(found, Start) and found.is_protected
            ):  # claimed at this moment, and not gone on with
                lookup.claims_of(self._execution).give_back(found)
            raise

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
        if self.running and (self.outside is None or not self.outside.is_at_rest()):
            return  # whoever is running makes us look again
        if self._execution in busy:
            self.look()
            return
        self.rests += 1
        if self._replay.left and (self._recorded or self._fresh or self._seeking) and self._is_early():
            self.look_later()
            return
        if self._next_of_claims() or self._next_of_recorded() or self._next_of_live():
            self.look()
            return
        if self._fresh and self._begin_fresh():
            return
        if self.at_rest and not self._live:
            for consider in self.at_rest:
                consider()

    def _next_of_claims(self) -> bool:
        """Give a call the earliest record that is what it is, unless one recorded earlier is next anyway."""
        if not self._seeking:
            return False
        claims, best = lookup.claims_of(self._execution), None
        for one in tuple(self._seeking):
            asking, turn = one
            found = claims.earliest_match(asking.call) if not turn.done() else None
            if found is None:
                self._seeking.remove(one)
                if not turn.done():  # else cancelled meanwhile by the run's own code
                    self._fresh.append(one)
            elif best is None or found < best[0]:
                best = found, one
        next_seq = min((seq for seq, _, turn in self._recorded if not turn.done()), default=None)
        if best is None or (next_seq is not None and next_seq < best[0][0]):
            return False
        (_, step), one = best
        self._seeking.remove(one)
        one[1].set_result(claims.take(step))
        return True

    def _begin_fresh(self) -> bool:
        """Let fresh bodies start; those of effects only when no effect on record was passed over."""
        has_effects = any(asking is not None and asking.call.is_effect for asking, _ in self._fresh)
        missed = lookup.passed_over(self._execution) if has_effects else None
        has_begun, held = False, deque[tuple[StepLookup, asyncio.Future[Claimed | None]]]()
        while self._fresh:
            asking, turn = self._fresh.popleft()
            if turn.done():  # cancelled meanwhile by the run's own code
                continue
            if missed is not None and asking is not None and asking.call.is_effect:
                held.append((asking, turn))
                continue
            turn.set_result(None)
            has_begun = True
        self._fresh.extend(held)
        if missed is not None and held and not has_begun and not self._execution.reads:
            return self._hold(held[0][0], missed)
        return has_begun

    def _hold(self, asking: StepLookup, missed: Claimed) -> bool:
        """Stop the run before an effect, unless its code waits for a timer, and may yet ask for the other."""
        if self.has_foreign():
            now = self._loop.time()
            if self._refusal is None or self._refusal[0] != missed.seq:
                began_ms = self._told_ms if self._told_ms is not None else self._replay.began_ms
                took_seconds = max(0, missed.at_ms - began_ms) / 1000
                self._refusal = (missed.seq, now + took_seconds + REFUSAL_SECONDS)
            if now < self._refusal[1]:
                self.look_later()
                return True
        lookup.refuse(asking, missed)
        return False

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
