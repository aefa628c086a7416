"""Deliver outcomes to a run's code in journal order, on replay and live alike.

Invariants:
- Outcomes are delivered one at a time, in journal order, and the next one only when the run's code is
  quiescent: none of its callbacks is ready on the event loop, none of its threads is running (one that waits
  is not: `engine.run.run_threads`), and no body that it cancelled is still ending.
  So the branch that was first the first time is first again: gather's first failure, races, cancellations.
- No fresh body starts while a recorded outcome can still be delivered.
- A call without a record at its own position gets one by step name and arguments only when the code is
  quiescent, the earliest record first and one at a time (`engine.run.identity`).
- The body of an effect starts only when no recorded effect is unclaimed.
- Code may wait for timers or sockets outside of steps (`asyncio.sleep`, a thread in `time.sleep`). While an
  outcome recorded earlier is unclaimed, we wait for that code about as long as it took the first time:
  changed code may never make the call.

A run with a single branch and no records needs none of this and pays nothing. A single branch that claims the
next outcome in the journal, while nothing else of its run is ready, gets it at once: the rest of the run is
quiescent. Every so often (AT_ONCE) it returns to the event loop, so that other code can run.
See docs/decisions/0011, 0015 and 0016.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Awaitable, Callable
from contextvars import Context
from functools import partial
from typing import Any, Protocol, cast

from ninelives.core.journal.matching import Claimed, Start
from ninelives.core.journal.replay import Recorded, Replay
from ninelives.core.model.commit import Outcome, Verdict
from ninelives.engine.context import Running, is_code_of
from ninelives.engine.run import lookup
from ninelives.engine.run.lookup import StepLookup
from ninelives.engine.run.quiescence import has_foreign, is_plainly_idle, round_of

FOREIGN_SECONDS = 0.05
"""The interval at which we check whether a run's code still waits for its timers or sockets."""
AT_ONCE = 64
"""How many recorded outcomes a single branch gets at once before it yields to the event loop."""
SLACK_SECONDS = 1.0
"""How much longer than the first time we wait for the call that claims a recorded outcome."""
REFUSAL_SECONDS = 5.0
"""The same, before we stop a run because no call claimed a recorded effect."""


class Threads(Protocol):
    """Threads that run the run's code (`run_threads.RunThreads`)."""

    has_foreign: bool
    may_go_on: bool

    def is_at_rest(self) -> bool:
        """Return whether none of them is running."""


class Slot:
    """The position of one live outcome in the delivery order; ready once it may be delivered."""

    __slots__ = ("delivered", "is_ready")

    def __init__(self, delivered: asyncio.Future[None]) -> None:
        self.delivered, self.is_ready = delivered, False


class Delivery:
    """Delivers outcomes to one run's code."""

    def __init__(self, loop: asyncio.AbstractEventLoop, execution: Running, replay: Replay) -> None:
        self._loop, self._execution, self._replay = loop, execution, replay
        self._round = round_of(loop)
        self.due: list[tuple[int, int, asyncio.Future[None]]] = []
        """A heap of the recorded outcomes that calls have claimed and wait for."""
        self.slots: deque[Slot] = deque()
        """The live outcomes that calls wait for, in the order of their records."""
        self._fresh: deque[tuple[StepLookup | None, asyncio.Future[Claimed | None]]] = deque()
        self._seeking: list[tuple[StepLookup, asyncio.Future[Claimed | None]]] = []
        self._is_scheduled = False
        self._at_once = 0
        self.running: set[object] = set()
        self.at_rest: tuple[Callable[[], None], ...] = ()
        self._later: asyncio.TimerHandle | None = None
        self._delivered_ms: int | None = None
        self._patience: tuple[int, float] | None = None
        self.outside: Threads | None = None
        self.rests = 0
        """How often the run's code was found quiescent."""
        self._refusal: tuple[int, float] | None = None
        self._reads = 0
        self.delivered_seq = -1

    async def recorded(self, found: Recorded, permit: asyncio.Future[None] | None = None) -> None:
        """Wait until a recorded outcome is next; `permit` is its `claim`, if it was made before."""
        seq = found.seq
        if permit is not None or not self._is_next_anyway(seq):
            await (permit if permit is not None else self.claim(found))
            self._note_delivered()
        self.delivered_seq = max(self.delivered_seq, seq)
        self._delivered_ms = found.at_ms

    def claim(self, found: Recorded) -> asyncio.Future[None]:
        """Return a future that is done once a recorded outcome is next."""
        permit: asyncio.Future[None] = self._loop.create_future()
        heapq.heappush(self.due, (found.seq, id(permit), permit))  # id: after a cancellation, seq may repeat
        self.check_soon()
        return permit

    def _is_next_anyway(self, seq: int) -> bool:
        """Return whether a single branch claims the next outcome and the rest of the run is quiescent."""
        execution = self._execution
        # Something else waits or runs: then the order of the journal decides, not the order of the calls.
        if self.due or self.slots or self._fresh or self._seeking or self.running:
            return False
        if not execution.has_one_branch:
            return False
        earliest = self._replay.earliest()
        if earliest is not None and earliest.seq < seq:
            return False  # a call may still claim the earlier one
        self._at_once = (self._at_once + 1) % AT_ONCE
        return self._at_once != 0 and is_plainly_idle(self._loop, execution)

    async def settle(
        self, written: Awaitable[Verdict] | None, *, is_own: bool = True, is_first: bool = False
    ) -> Verdict | None:
        """Wait until an outcome is durable and next for delivery. Await it at once when it is written.

        An outcome that need not be durable, or is already, comes as None. `is_first`: it precedes all others,
        because a second branch appeared while it was being committed. The outcome of a time limit
        (`is_own=False`) is not the branch's own. An outcome that was not committed is not delivered.
        """
        # Before the first await: slots are in the order of the records, and this one has just been written.
        slot = self._reserve(is_first=is_first)
        try:
            verdict = await written if written is not None else None
            if verdict is None or verdict.outcome is Outcome.COMMITTED:
                await self.live(slot, is_own=is_own)
                return verdict
        except BaseException:
            # A slot that never becomes ready would block every outcome behind it.
            self._give_up(slot)
            raise
        self._give_up(slot)
        return verdict

    def _reserve(self, *, is_first: bool) -> Slot:
        slot = Slot(self._loop.create_future())
        if is_first:
            self.slots.appendleft(slot)
        else:
            self.slots.append(slot)
        return slot

    def _give_up(self, slot: Slot) -> None:
        """Give a position up; outcomes behind it may be due now."""
        slot.delivered.cancel()
        self.check_soon()

    async def live(self, slot: Slot, *, is_own: bool = True) -> None:
        """Mark an outcome as ready for delivery, and wait until it is next.

        With a single branch, its own outcome is delivered at once.
        """
        slot.is_ready = True
        is_single = is_own and self._execution.has_one_branch and self.slots[0] is slot
        if is_single and not self._replay.left and not self.has_recorded:
            self.slots.popleft()
            return
        self.check_soon()
        try:
            await slot.delivered
            self._note_delivered()
        finally:
            self.check_soon()

    def _note_delivered(self) -> None:
        """Note on the current branch when it got an outcome; limits check for quiescence since then."""
        if self._execution.limits and hasattr(task := asyncio.current_task(), "delivered_at"):
            cast("Any", task).delivered_at = self.rests

    async def fresh(self) -> None:
        """Wait until a body may start: no recorded outcome can be delivered any more."""
        await self._wait_fresh(None)

    async def begin(self, search: StepLookup) -> None:
        """Wait until a body that was started before may start again, by the rules for fresh bodies."""
        await self._wait_fresh(search)

    async def _wait_fresh(self, search: StepLookup | None) -> None:
        if search is not None and self._replay.dropped:
            search.is_after_redo = self._execution.claims.is_redone(search.position.branch)
        permit: asyncio.Future[Claimed | None] = self._loop.create_future()
        self._fresh.append((search, permit))
        self.check_soon()
        await permit

    async def seek(self, search: StepLookup) -> Claimed | None:
        """Return the record that a call claims by name and arguments; None when its body may start.

        Decided once the run's code is quiescent.
        """
        permit: asyncio.Future[Claimed | None] = self._loop.create_future()
        if self._replay.dropped:
            search.is_after_redo = self._execution.claims.is_redone(search.position.branch)
        if self._execution.claims.earliest_match(search.call) is None:
            self._fresh.append((search, permit))  # unclaimed records only shrink: it never gets a match
        else:
            self._seeking.append((search, permit))
        self.check_soon()
        try:
            return await permit
        except asyncio.CancelledError:
            found = permit.result() if permit.done() and not permit.cancelled() else None
            if (
                isinstance(found, Start) and found.is_protected
            ):  # claimed for this call at this very moment, and not used
                # Lost, it would never be settled; unclaimed, a person
                # settles it at the end (`protected.open_starts`).
                self._execution.claims.give_back(found)
            raise

    @property
    def has_recorded(self) -> bool:
        """Whether a call waits for a recorded outcome."""
        return bool(self.due) and any(not permit.done() for *_, permit in self.due)

    def read_begins(self) -> None:
        """Hold back fresh effects: a decision or read without a record executes while records are unclaimed.

        It may lead the code to claim them.
        """
        self._reads += 1

    @property
    def has_reads(self) -> bool:
        """Whether such a decision or read is under way."""
        return self._reads > 0

    def read_ends(self) -> None:
        """Count such a decision or read as over."""
        self._reads -= 1
        self.check_soon()

    def check_soon(self) -> None:
        """Schedule a check whether the run is quiescent."""
        if not self._is_scheduled:
            self._is_scheduled = True
            self._round.ask(self._loop, self)

    def check_later(self) -> None:
        """Schedule a check in FOREIGN_SECONDS: the run's code waits for its own timers or sockets."""
        if self._later is None:
            self._later = self._loop.call_later(FOREIGN_SECONDS, self._check_now, context=Context())

    def _check_now(self) -> None:
        self._later = None
        self.check_soon()

    def check(self, busy: frozenset[object]) -> None:
        """Deliver the next outcome, unless something of the run is ready or running."""
        self._is_scheduled = False
        if self.running and not self._are_threads_at_rest():
            return  # what is running schedules the next check when it stops
        # Ask again in the next iteration: what is ready now may claim an earlier record.
        if self._execution in busy:
            self.check_soon()
            return
        self.rests += 1
        if self._replay.left and (self.due or self._fresh or self._seeking) and self._is_early():
            self.check_later()
            return
        # One per check: the code that it wakes must come to rest before
        # the next. Recorded outcomes precede live ones, as in the journal.
        if self._next_of_claims() or self._next_of_recorded() or self._next_of_live():
            self.check_soon()
            return
        # Last: as long as a recorded outcome can be delivered, the code may still claim records.
        if self._fresh and self._begin_fresh():
            return
        # A thread that only sleeps goes on by itself: the run must not park under it.
        if self.at_rest and self._may_threads_go_on:
            self.check_later()
        elif self.at_rest and not self.slots:
            # No outcome is on its way either (`slots`): what every branch waits for must come from outside.
            for consider in self.at_rest:
                consider()

    @property
    def has_ready(self) -> bool:
        """Whether a call waits only for the run to become quiescent."""
        return bool(self.due or self._fresh or self._seeking or (self.slots and self.slots[0].is_ready))

    def _are_threads_at_rest(self) -> bool:
        """Return whether all that runs are waiting threads; sample them only if anything depends on it."""
        return self.outside is not None and bool(self.has_ready or self.at_rest) and self.outside.is_at_rest()

    @property
    def _may_threads_go_on(self) -> bool:
        return bool(self.running) and self.outside is not None and self.outside.may_go_on

    @property
    def is_kept(self) -> bool:
        """Whether a thread that we started waits: the run does not park, since the thread would be left."""
        return bool(self.running) and self.outside is not None and not self.outside.has_foreign

    def _next_of_claims(self) -> bool:
        """Give a call its earliest match, unless an outcome recorded before that waits for delivery."""
        if not self._seeking:
            return False
        claims, best = self._execution.claims, None
        for one in tuple(self._seeking):
            search, permit = one
            found = claims.earliest_match(search.call) if not permit.done() else None
            if found is None:
                self._seeking.remove(one)
                if not permit.done():  # else the run's code has cancelled the call
                    self._fresh.append(one)
            elif best is None or found < best[0]:
                best = found, one
        next_seq = min((seq for seq, _, permit in self.due if not permit.done()), default=None)
        # The code that gets the earlier outcome first may claim this very record by its position.
        if best is None or (next_seq is not None and next_seq < best[0][0]):
            return False
        (_, step), one = best
        self._seeking.remove(one)
        one[1].set_result(claims.take(step))
        return True

    def _begin_fresh(self) -> bool:
        """Let fresh bodies start; those of effects only when no recorded effect was passed over.

        They also wait while a compensation is being registered that may repeat one on record.
        """
        refused, missed = self._passed_over()
        is_held = missed is not None or bool(self._replay.registering)
        has_begun, held = False, deque[tuple[StepLookup, asyncio.Future[Claimed | None]]]()
        while self._fresh:
            search, permit = self._fresh.popleft()
            if permit.done():  # the run's code has cancelled the call
                continue
            if is_held and search is not None and search.call.is_effect:
                held.append((search, permit))
                continue
            permit.set_result(None)
            has_begun = True
            if search is not None and self._replay.dropped:
                self._execution.claims.redo(search.call)
        self._fresh.extend(held)
        # What has just begun, or a read under way, may still lead
        # the code to the record: refuse only at a standstill.
        if refused is not None and missed is not None and not has_begun and not self._reads:
            return self._hold(refused, missed)
        if missed is None and held and has_begun:
            self.check_soon()  # the compensations that these wait for may be written now
        return has_begun

    def _passed_over(self) -> tuple[StepLookup | None, Claimed | None]:
        """Return the first fresh effect that waits and a recorded one that was passed over, if any was."""
        for search, permit in self._fresh:
            if search is None or not search.call.is_effect or permit.done():
                continue
            # A registration may stand for any of them (`agent.compensations`), not only for this call.
            is_own = bool(self._replay.dropped) and not self._replay.registering
            missed = lookup.passed_over(self._execution, search if is_own else None)
            if missed is not None or not is_own:
                return search, missed
        return None, None

    def _hold(self, search: StepLookup, missed: Claimed) -> bool:
        """Stop the run before an effect, unless its code waits for a timer and may still claim the other."""
        # Its own timer may wake code that makes the call: wait as long as it took then, and a while longer.
        if self.has_foreign():
            now = self._loop.time()
            if self._refusal is None or self._refusal[0] != missed.seq:
                began_ms = self._delivered_ms if self._delivered_ms is not None else self._replay.began_ms
                took_seconds = max(0, missed.at_ms - began_ms) / 1000
                self._refusal = (missed.seq, now + took_seconds + REFUSAL_SECONDS)
            if now < self._refusal[1]:
                self.check_later()
                return True
        lookup.refuse(search, missed)
        return False

    def _is_early(self) -> bool:
        """Return whether code that waits for a timer may still claim an outcome recorded earlier."""
        awaited = min((seq for seq, _, permit in self.due if not permit.done()), default=None)
        earliest = self._replay.earliest()
        if earliest is None or (awaited is not None and awaited < earliest.seq) or not self.has_foreign():
            return False
        while (earliest := self._replay.earliest()) is not None:
            if awaited is not None and awaited < earliest.seq:
                return False
            if self._replay.dropped and self._execution.claims.may_react(earliest):
                # Code in a timer does not call it: the failed step that led to it must be done again first.
                self._replay.pass_by()
                continue
            now = self._loop.time()
            if self._patience is None or self._patience[0] != earliest.seq:
                began_ms = self._delivered_ms if self._delivered_ms is not None else self._replay.began_ms
                took_seconds = max(0, earliest.at_ms - began_ms) / 1000
                self._patience = (earliest.seq, now + took_seconds + SLACK_SECONDS)
            if now < self._patience[1]:
                return True
            # As if it had been delivered: the patience for the next record counts from this one.
            self._delivered_ms = earliest.at_ms
            self._replay.pass_by()
        return False

    def _next_of_recorded(self) -> bool:
        while self.due:
            *_, permit = heapq.heappop(self.due)
            if not permit.done():
                permit.set_result(None)
                return True
        return False

    def _next_of_live(self) -> bool:
        while self.slots:
            slot = self.slots[0]
            if slot.delivered.done():
                self.slots.popleft()
            elif slot.is_ready:
                self.slots.popleft()
                slot.delivered.set_result(None)
                return True
            else:
                return False  # not durable yet: no later outcome may be delivered before it
        return False

    def has_foreign(self) -> bool:
        """Return whether the run's code waits for a timer or a socket, outside of any body."""
        return self._may_threads_go_on or has_foreign(self._loop, partial(is_code_of, self._execution))
