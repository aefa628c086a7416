"""One life of a run in this process: its journal, its branches, and what it may still do.

An execution ends by its agent's return, or it is sealed: ownership was lost, the store broke, the process is
told to stop. A sealed one begins and records nothing any more; its code never learns of it (a pending
await stays pending), its tasks are cancelled, and what does not end within a second is abandoned.
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextvars import Context
from hashlib import blake2b
from typing import Any, Protocol, TypeVar

from ninelives.core.clock import Clock
from ninelives.core.errors import (
    KeyConflict,
    LeaseLost,
    NineLivesError,
    RunCancelled,
    RunError,
    StoreError,
    StoreUnavailable,
    TimedOut,
    UsageError,
)
from ninelives.core.journal.matching import RecordClaims
from ninelives.core.journal.replay import Recorded, Replay
from ninelives.core.journal.resources import Target
from ninelives.core.model.commit import Outcome, Verdict
from ninelives.core.model.run import Journal, Kind, News, RunRow
from ninelives.core.model.totals import NO_FACTS, Facts
from ninelives.core.values.lists import Memory
from ninelives.engine.commit.loop_commits import LoopCommits
from ninelives.engine.commit.ticket import NOTHING, Draft, Extras, Tail
from ninelives.engine.context import BRANCH, FRAME, Branch, StepPosition
from ninelives.engine.lease import ENDLESS, Endless, Lease
from ninelives.engine.run.delivery import Delivery
from ninelives.engine.run.intents import Intents
from ninelives.engine.run.output_buffer import OutputBuffer
from ninelives.engine.run.quiescence import timer_of
from ninelives.engine.spec.registry import Step
from ninelives.store import Store

T = TypeVar("T")
STOP_SECONDS = 5.0
"""How long the code of a run that is cancelled may take to clean up."""
UNAVAILABLE_SECONDS = 0.5
"""How soon a store that was not there is asked again."""
PATIENCE = 100
"""How often code that was told to leave is told so again; then it waits for ever."""


class Paused(RunError):
    """Why nothing begins in a run that somebody has paused. No code of the run ever sees it."""


class DurableWaits(Protocol):
    """The durable waits of an execution (`waits.Waits`)."""

    @property
    def has_any(self) -> bool:
        """Return whether a branch waits."""

    def hear(self) -> None:
        """Let every wait check again: there is news."""


class StartedCall(Protocol):
    """A call of a protected action (`protected_call.ProtectedCall`)."""

    @property
    def is_under_way(self) -> bool:
        """Return whether it has started and has no outcome."""


class BranchTask(asyncio.Task[Any]):
    """A task of a run's own code; knows when a timer that replay cannot repeat has cancelled it."""

    foreign_timer: str | None = None
    body_of: Execution | None = None
    code: Coroutine[Any, Any, Any] | None = None
    thread: int | None = None
    """The thread that waits for it, if it is asked for by plain code."""
    act: StartedCall | None = None
    """The protected action that is called on it, if one is."""
    told_at = -1
    """How often the run's code had come to rest when this branch was last told an outcome."""

    @property
    def is_acting(self) -> bool:
        """Tell whether a non-resumable action has started on it, and has no outcome."""
        return self.act is not None and self.act.is_under_way

    def cancel(self, msg: Any | None = None) -> bool:
        """Cancel, and note it if a timer of the agent's code does it; a body's own timers may."""
        if FRAME.get() is None:
            self.foreign_timer = timer_of(sys._getframe(1)) or self.foreign_timer  # noqa: SLF001
        if self.body_of is not None:
            # Until the body is out, the run's code has not learnt of this: it is not at rest.
            self.body_of.delivery.running.add(self)
        return super().cancel(msg)


class Execution:
    """A run that is being executed here."""

    task_type: type[BranchTask] = BranchTask
    waits: DurableWaits | None = None
    closed: NineLivesError | None = None
    stopped: RunCancelled | TimedOut | None = None
    deadline_ms: int | None = None
    is_leaving = False
    is_ending = False
    """Whether the agent's code is through, and only actions that have started go on."""
    _refusals = 0
    _alarm: asyncio.TimerHandle | None = None
    lease: Lease | Endless = ENDLESS
    _taken: frozenset[int] = frozenset()
    claims: RecordClaims | None = None
    given: dict[str, str] | None = None
    reads = 0
    """How many decisions and reads that were asked afresh, while records were unclaimed, are under way."""
    called: dict[str, Any] | None = None
    """The steps called so far whose names other steps have, too."""
    is_undoing = False
    """Whether the run's own code is over and what it did is to be undone."""
    riders: tuple[Draft, ...] = ()
    """Records that go with the next one."""
    is_accepting = False
    """Whether a person has said that the run goes on with its resources as they are."""

    def __init__(
        self,
        journal: Journal,
        store: Store,
        commits: LoopCommits,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        intents: Intents,
        is_pipelined: bool,
    ) -> None:
        self.run, self.turn = journal.run, journal.run.turn
        self.latest, self._signals, self._items = journal.run, journal.signals, journal.items
        self.store, self.loop, self.clock, self.is_pipelined = store, loop, clock, is_pipelined
        self.intents = intents
        self.replay = Replay(journal.records)
        self.moved: list[tuple[str, str]] = []
        self.asked_again: list[str] = []
        self.patches: dict[str, bool] = {}
        self.replayed = 0
        self.executed = 0
        self.timers = 0
        self.blobs: set[bytes] = set()
        self.lists: Memory = {}
        self.output: OutputBuffer | None = OutputBuffer(self) if self.replay.emitted else None
        self.tail = Tail(journal.run, self._judge)
        self.root = Branch("")
        self.main: asyncio.Task[Any] | None = None
        self.sealed: NineLivesError | None = None
        self._commits = commits
        self._when_sealed: asyncio.Future[None] | None = None
        self._when_over: asyncio.Future[None] | None = None
        self._tasks: dict[asyncio.Task[Any], None] = {}  # in order: the same history is left the same way
        self.delivery = Delivery(loop, self, self._is_alone, self.replay)
        self._parts: dict[Callable[[Execution], Any], Any] = {}

    # Tasks --------------------------------------------------------------------------------------

    def part(self, kind: Callable[[Execution], T]) -> T:
        """Return what another module keeps for this execution, by its class; made when first asked for."""
        found: T | None = self._parts.get(kind)
        if found is None:
            found = self._parts[kind] = kind(self)
        return found

    def adopt(self, task: asyncio.Task[Any]) -> None:
        """Count a task as a branch of this run until it is done."""
        self._tasks[task] = None
        task.add_done_callback(self._leave)

    def _leave(self, task: asyncio.Task[Any]) -> None:
        self._tasks.pop(task, None)
        if task is self.main:
            _ring(self._when_over)
        if isinstance(task, BranchTask) and task.code is not None:
            task.code.close()  # one that was cancelled before it began would be called forgotten
        if self.delivery.at_rest:
            self.delivery.look()

    def open_branches(self) -> list[asyncio.Task[Any]]:
        """Return the tasks that are not done."""
        return [task for task in self._tasks if not task.done()]

    @property
    def has_ended(self) -> bool:
        """Tell whether the agent's code is through, and what other branches wait for no longer matters."""
        return self.main is not None and self.main.done()

    @property
    def has_bodies(self) -> bool:
        """Tell whether a body runs."""
        return any(isinstance(task, BranchTask) and task.body_of is not None for task in self._tasks)

    @property
    def has_acts(self) -> bool:
        """Tell whether a non-resumable action has started and has no outcome."""
        return any(isinstance(task, BranchTask) and task.is_acting for task in self._tasks)

    @property
    def has_waits(self) -> bool:
        """Tell whether a branch waits durably."""
        return self.waits is not None and self.waits.has_any

    @property
    def has_one_branch(self) -> bool:
        """Tell whether there is one branch only, and no timer of the run's beside it."""
        return len(self._tasks) <= 1 and not self.timers

    def _is_alone(self) -> bool:
        return self.has_one_branch and not self.is_catching_up

    @property
    def is_alone(self) -> bool:
        """Tell whether the only branch may be told of its own outcome at once: there is no order to keep."""
        has_one_branch = len(self._tasks) <= 1 and not self.timers
        return has_one_branch and not self.replay.left and not self.delivery.has_anybody

    @property
    def is_resumed(self) -> bool:
        """Tell whether a call may have a record, or has to wait for one."""
        return bool(self.replay.ids) or self.replay.left > 0

    @property
    def is_catching_up(self) -> bool:
        """Tell whether recorded outcomes are still to be asked for or delivered."""
        return self.replay.left > 0 or self.delivery.has_recorded

    def count(self, step: Step, found: Recorded) -> None:  # noqa: ARG002 (what was found is for who recovers)
        """Count a step that was found recorded."""
        self.replayed += 1

    def checked(self, target: Target, stale: str | None) -> None:
        """Hear how a resource was found that the run holds: for who recovers."""

    def place(self, name: str) -> StepPosition:
        """Return the place of the next call of that name on this branch."""
        return StepPosition(self, BRANCH.get(), name)

    # The journal --------------------------------------------------------------------------------

    def write(self, drafts: Sequence[Draft], extras: Extras = NOTHING) -> asyncio.Future[Verdict]:
        """Hand records to the committer; the verdict comes later. On the event loop's thread only."""
        if extras is not NOTHING and extras.takes:
            self._signals = tuple(one for one in self._signals if one.number not in extras.takes)
            self._taken = self._taken.union(extras.takes)
        riders = self.take_riders() if self.riders else ()
        try:
            if riders and extras.may_be_refused:
                self._commits.start(self.tail, riders)  # apart: they count, whatever becomes of the rest
            elif riders:
                drafts = (*riders, *drafts)
            return self._commits.start(self.tail, drafts, extras)
        except NineLivesError as error:
            self.seal(error)
            return self.loop.create_future()

    def append(self, draft: Draft, *, is_alone: bool) -> Awaitable[Verdict] | None:
        """Hand one record to the committer, as `write` does; None when it is durable already."""
        if self.riders:
            return self.write([draft])
        try:
            return self._commits.append(self.tail, draft, is_alone=is_alone)
        except NineLivesError as error:
            self.seal(error)
            return self.loop.create_future()

    async def finish(self, draft: Draft, extras: Extras) -> None:
        """Hand the last record to the committer; returns when it has its verdict."""
        try:
            written = self._commits.finish(self.tail, (draft,), extras)
        except NineLivesError as error:
            self.seal(error)
            written = self.loop.create_future()
        if written is not None:
            await written

    def note(self, kind: Kind, step: str, body: bytes, facts: Facts = NO_FACTS) -> None:
        """Record something that nobody waits for; what comes after it is not durable before it."""
        if self.sealed is None:
            self.on_loop(lambda: self.write([(kind, step, body, (), facts)]))

    def ride(self, draft: Draft) -> None:
        """Record something that matters only to what is recorded, or done, after it: it goes with that."""
        if self.sealed is None:
            self.riders = (*self.riders, draft)

    def take_riders(self) -> tuple[Draft, ...]:
        """Return the records that go with what is being recorded now."""
        riders, self.riders = self.riders, ()
        return riders

    async def durable(self, written: Awaitable[Verdict]) -> Verdict:
        """Wait until something written is durable. Never returns once the execution is sealed.

        What was written is for one to wait for: who is cancelled here ends it for all.
        """
        try:
            verdict = await written
        except NineLivesError as error:
            self.seal(error)
        if self.sealed is not None:
            await self.forever()
        return verdict

    async def barrier(self, *, is_read: bool = False) -> None:
        """Wait until everything written so far is durable: what comes next can be seen by the world.

        What is only read, or decided, is no effect: what goes with the next record may do so.
        """
        if self.riders and not is_read:
            self.write(())
        answered = self._commits.all_answered(self.tail)
        if answered is not None:
            await answered
            await self.require_open()

    def when_answered(self) -> asyncio.Future[None] | None:
        """Return what is done once everything written so far has its verdict; None when it is so now."""
        return self._commits.all_answered(self.tail)

    async def flushed(self) -> None:
        """Wait until everything written so far has its verdict, whatever it is; also once we are sealed."""
        answered = self._commits.all_answered(self.tail)
        if answered is not None:
            await answered

    def _judge(self, verdict: Verdict | None, error: NineLivesError | None) -> None:
        if error is None and verdict is not None:
            error = verdict.error
            if verdict.outcome is Outcome.FENCED:
                error = LeaseLost(
                    "another worker owns the run now",
                    run=self.run.id,
                    remedy="Nothing to do: it goes on there",
                )
            elif verdict.outcome is not Outcome.REFUSED or isinstance(error, KeyConflict):
                return  # whoever asked for it goes on from there
        self.seal(error if error is not None else UsageError("a record was refused", run=self.run.id))

    # From outside -------------------------------------------------------------------------------

    def news(self) -> News:
        """Return what is known to have happened to the run, and the store's time."""
        return News(self.latest, self._signals, self._items, self.store.now_ms())

    def hear(self, news: News) -> None:
        """Take in what has happened to the run; who waits looks again."""
        if news.run.news < self.latest.news:
            return  # a read that was overtaken
        self.latest, self._items = news.run, news.items
        self._signals = tuple(one for one in news.signals if one.number not in self._taken)
        self.heed(news.run)
        if self.waits is not None:
            self.waits.hear()

    def heed(self, run: RunRow) -> None:
        """Do as was asked of the run: cancel, pause or go on."""
        if run.cancelling and not self.is_undoing:
            self.stop(RunCancelled("the run is being cancelled", run=run.id))
        elif run.paused and self.closed is None:
            self.closed = Paused("the run is paused", run=run.id)
        elif not run.paused and isinstance(self.closed, Paused):
            self.closed = None

    async def call_store(self, work: Callable[..., T], *values: Any) -> T:
        """Call the store in a thread: `work(store, *values)`. The run's code learns nothing of its troubles.

        Raises what is no trouble of the store's. Never returns once the execution is sealed for one.
        """
        while True:
            try:
                return await asyncio.to_thread(work, self.store, *values)
            except StoreUnavailable:
                await self._rest(UNAVAILABLE_SECONDS)
            except StoreError as error:
                self.seal(error)
                await self.forever()

    async def _rest(self, seconds: float) -> None:
        """Let time pass that is no time of the run's code."""
        over: asyncio.Future[None] = self.loop.create_future()
        timer = self.loop.call_later(seconds, _ring, over, context=Context())
        try:
            await over
        finally:
            timer.cancel()

    # The end ------------------------------------------------------------------------------------

    def seal(self, why: NineLivesError) -> None:
        """Refuse every further call and record; the executor clears up."""
        if self.sealed is None:
            self.sealed = self.closed = why
            _ring(self._when_sealed)
            _ring(self._when_over)

    def stop(self, why: RunCancelled | TimedOut) -> None:
        """End the run's code: it is cancelled now and at each further call, and soon abandoned.

        A non-resumable action that is being carried out has its own time for that.
        """
        if self.stopped is None and self.sealed is None:
            self.stopped = self.closed = why
            if self.main is not None:
                self.main.cancel()
            self._set_alarm(STOP_SECONDS, lambda: self._give_out(why))

    def _give_out(self, why: RunCancelled | TimedOut) -> None:
        if self.has_acts and self.has_bodies:
            self._set_alarm(STOP_SECONDS, lambda: self._give_out(why))
        else:
            self.seal(why)

    def limit(self, seconds: float) -> None:
        """End the run when it takes longer than this, from its creation on, in all its lives."""
        self.deadline_ms = self.run.created_ms + int(seconds * 1000)
        left = (self.deadline_ms - self.store.now_ms()) / 1000
        if left > 0:
            # No timer trusts the clock for longer than a minute: it may be set meanwhile.
            self._set_alarm(min(left, 60.0), lambda: self.limit(seconds))
        elif not self.has_ended:
            self.stop(TimedOut(f"the run did not end within {seconds:g} s", run=self.run.id))

    def _set_alarm(self, seconds: float, work: Callable[[], None]) -> None:
        self.leave()
        self._alarm = self.loop.call_later(seconds, work, context=Context())

    def leave(self) -> None:
        """Set nothing off any more."""
        if self._alarm is not None:
            self._alarm.cancel()

    def when_sealed(self) -> asyncio.Future[None]:
        """Return what is done once the execution is sealed."""
        if self._when_sealed is None:
            self._when_sealed = self.loop.create_future()
            if self.sealed is not None:
                self._when_sealed.set_result(None)
        return self._when_sealed

    async def over(self, main: asyncio.Task[Any]) -> None:
        """Wait until the agent's own task is done, or the execution is sealed; of use once, before either."""
        self.main, self._when_over = main, self.loop.create_future()
        if self.stopped is not None:
            main.cancel()
        await self._when_over

    async def require_open(self) -> None:
        """Go on, unless the execution is sealed: then wait for the end."""
        if self.sealed is not None:
            await self.forever()

    @property
    def is_acting(self) -> bool:
        """Return whether a non-resumable action has started on the current branch, and has no outcome."""
        task = asyncio.current_task(self.loop)
        return isinstance(task, BranchTask) and task.is_acting

    async def require_lease(self) -> None:
        """Go on once something may begin again; never, if the lease is lost."""
        await self.lease.renewed()
        await self.require_open()

    async def forever(self) -> None:
        """Wait for what never comes; only cancelling ends it."""
        if self.is_leaving:
            await self.refuse()
        await self.loop.create_future()

    async def refuse(self) -> None:
        """Cancel the caller; after many times, let it wait: it does not leave."""
        self._refusals += 1
        if self._refusals > PATIENCE:
            await self.loop.create_future()
        await asyncio.sleep(0)
        raise asyncio.CancelledError

    # Threads ------------------------------------------------------------------------------------

    def on_loop(self, work: Callable[[], object]) -> None:
        """Do something on the event loop's thread: now if we are there, else in order of asking."""
        try:
            here = asyncio.get_running_loop() is self.loop
        except RuntimeError:
            here = False
        if here:
            work()
        elif not self.loop.is_closed():  # else code that was left behind is thrown away
            self.loop.call_soon_threadsafe(work)

    def derived(self, place: StepPosition) -> random.Random:
        """Return randomness that is the same on every replay of this place."""
        passage = self.replay.passage
        key = place.key() if passage is None or passage.here is None else place.key_in(passage.here)
        return random.Random(blake2b(key.encode(), digest_size=16).digest())

    @property
    def is_replaying(self) -> bool:
        """Tell whether recorded outcomes are still to come, as far as code outside of steps is concerned."""
        return self.is_catching_up and FRAME.get() is None


def _ring(waiting: asyncio.Future[None] | None) -> None:
    if waiting is not None and not waiting.done():
        waiting.set_result(None)
