"""One execution of a run in this process: its journal, its branches, and what it may still do.

An execution ends when its agent returns, or it is sealed: ownership was lost, the store failed, or the
process must stop. A sealed execution begins and records nothing. Its code does not see the seal (a pending
await stays pending); its tasks are cancelled, and those that do not end within a second are abandoned.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from contextvars import Context
from hashlib import blake2b
from typing import Any, TypeVar

from ninelives.core.clock import Clock
from ninelives.core.errors import (
    Divergence,
    KeyConflict,
    LeaseLost,
    NineLivesError,
    RunCancelled,
    StoreError,
    StoreUnavailable,
    UsageError,
)
from ninelives.core.governance.taint import of_run
from ninelives.core.journal.matching import RecordClaims
from ninelives.core.journal.replay import Recorded, Replay
from ninelives.core.journal.resources import Target
from ninelives.core.model.commit import Outcome, Verdict
from ninelives.core.model.run import Journal, Kind, News, RunRow
from ninelives.core.model.totals import NO_FACTS, Facts
from ninelives.core.model_calls.used_answers import CACHED
from ninelives.core.values.lists import Memory
from ninelives.engine.commit.loop_commits import RunCommits
from ninelives.engine.commit.ticket import NO_EXTRAS, Draft, Extras, Tail
from ninelives.engine.context import BRANCH, FRAME, Branch, StepPosition
from ninelives.engine.governor import Governing, Governor
from ninelives.engine.hooks import Hooks
from ninelives.engine.lease import ENDLESS, Endless, Lease
from ninelives.engine.model_calls import Asking
from ninelives.engine.run.branch_task import BranchTask
from ninelives.engine.run.delivery import Delivery
from ninelives.engine.run.intents import Intents
from ninelives.engine.run.lifecycle import OPEN, Lifecycle, Phase, ring
from ninelives.engine.run.output_buffer import OutputBuffer
from ninelives.engine.spec.registry import Step
from ninelives.store import Store

T = TypeVar("T")
UNAVAILABLE_SECONDS = 0.5
"""The pause before an unavailable store is called again."""
Gate = Callable[["Execution"], Awaitable[None]]
"""Awaited at every barrier, before anything new begins: a rehearsal ends there."""


class Counts:
    """How many steps an execution has replayed from their records, and how many it has executed."""

    __slots__ = ("executed", "replayed")

    def __init__(self) -> None:
        self.executed = self.replayed = 0


class Execution(Lifecycle):
    """A run that is being executed here."""

    task_type: type[BranchTask] = BranchTask
    deferred: tuple[Draft, ...] = ()
    """Records that are written together with the next one."""
    _taken: frozenset[int] = frozenset()
    _claims: RecordClaims | None = None
    _on_news: tuple[Callable[[], None], ...] = ()

    def __init__(
        self,
        journal: Journal,
        store: Store,
        commits: RunCommits,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        intents: Intents,
        is_pipelined: bool,
        hooks: Hooks | None = None,
        lease: Lease | Endless = ENDLESS,
        governing: Governing | None = None,
        asking: Asking | None = None,
        *,
        gate: Gate | None = None,
    ) -> None:
        super().__init__(journal.run, loop)
        self.turn = journal.run.turn
        self.latest, self._signals, self._items = journal.run, journal.signals, journal.items
        self.store, self.clock, self.is_pipelined = store, clock, is_pipelined
        self.intents, self.lease, self.hooks, self._gate = intents, lease, hooks, gate
        self.body_hooks = hooks if hooks is not None and hooks.wants_bodies else None
        """The hooks, if an observer wants to know of bodies: a log does not, and costs a step no call."""
        self.governing, self.asking = governing or Governing(), asking
        self.replay = Replay(journal.records)
        self._started_with = of_run(journal.run.labels)
        self.moved: list[tuple[str, str]] = []
        self.called_differently: list[str] = []
        self.patches: dict[str, bool] = {}
        self.counts = Counts()
        self.done = lease.steps_of(journal.run.agent)
        self.limits = 0
        self.lists: Memory = {}
        self.output: OutputBuffer | None = OutputBuffer(self) if self.replay.emitted else None
        self.tail = Tail(journal.run, self._judge, self._committed if hooks is not None else None)
        self.root = Branch("")
        self._commits = commits
        self.delivery = Delivery(loop, self, self.replay)
        self._components: dict[Callable[[Execution], Any], Any] = {}

    # Tasks --------------------------------------------------------------------------------------

    def component(self, kind: Callable[[Execution], T]) -> T:
        """Return the instance of `kind` that belongs to this execution; create it on first use."""
        found: T | None = self._components.get(kind)
        if found is None:
            found = self._components[kind] = kind(self)
        return found

    @property
    def governor(self) -> Governor | None:
        """What governs the run's calls; None while nothing does."""
        return self.governing.governor

    @property
    def taint(self) -> frozenset[str]:
        """Where the data came from that the run has read so far, and that it was started with."""
        started_with, read = self._started_with, self.replay.taint.counts
        return started_with.union(read) if read else started_with

    @property
    def is_on_cached_answers(self) -> bool:
        """Whether the run has used a cached answer that may not lead to effects."""
        return CACHED in self.replay.taint.counts or CACHED in self._started_with

    @property
    def last_error(self) -> str:
        """The last error that the journal records, as text; empty if there is none."""
        return self.tail.tally.last_error

    @property
    def has_one_branch(self) -> bool:
        """Whether the run has a single branch, and no time limit (`nl.timeout`) beside it."""
        return len(self._tasks) <= 1 and not self.limits

    def limit_begins(self) -> None:
        """Count a time limit of the run's code: its outcome competes with those of branches."""
        self.limits += 1

    def limit_ends(self) -> None:
        """Count a time limit as over."""
        self.limits -= 1

    @property
    def claims(self) -> RecordClaims:
        """The run's unclaimed records; made on first use."""
        if self._claims is None:
            self._claims = RecordClaims(self.replay)
        return self._claims

    @property
    def is_single(self) -> bool:
        """Whether the single branch may receive its outcome at once: no other outcome competes with it."""
        has_one_branch = len(self._tasks) <= 1 and not self.limits
        return has_one_branch and not self.replay.left and not (self.delivery.due or self.delivery.slots)

    @property
    def is_resumed(self) -> bool:
        """Whether the run has records that a call may claim, or has claimed."""
        return bool(self.replay.ids) or self.replay.left > 0

    def may_have_record(self, step: str) -> bool:
        """Return whether a call may have a record, or an effect must wait for records that others claim."""
        replay = self.replay
        # The first execution of a run: there is nothing to find, and a step pays one test for that.
        if not replay.ids and not replay.left:
            return False
        if replay.left > 0 or self.delivery.has_recorded:
            return True
        # With nothing left to deliver, an id that is on record still matters: a fresh call must not share it.
        return self.claims.has_starts or step in replay.ids or bool(replay.registering)

    @property
    def is_catching_up(self) -> bool:
        """Whether recorded outcomes are still unclaimed or undelivered."""
        return self.replay.left > 0 or self.delivery.has_recorded

    def count(self, step: Step, found: Recorded) -> None:
        """Count a step that was replayed from its record."""
        self.counts.replayed += 1
        if self.hooks is not None:
            self.hooks.replayed(self, step, found)

    def checked(self, target: Target, stale: str | None) -> None:
        """Report the state of a resource that the run holds."""
        if self.hooks is not None:
            self.hooks.resource_checked(self, target, stale)

    def output_buffer(self) -> OutputBuffer:
        """Return the buffer of what steps emit; made at the first emit."""
        if self.output is None:
            self.output = OutputBuffer(self)
        return self.output

    def retract(self, step: str) -> None:
        """Retract what a step has emitted so far: another request of it begins."""
        if self.output is not None:
            self.output.begin(step)

    def next_position(self, name: str) -> StepPosition:
        """Return the position of the next call of that name on this branch."""
        return StepPosition(self, BRANCH.get(), name)

    # The journal --------------------------------------------------------------------------------

    def write(self, drafts: Sequence[Draft], extras: Extras = NO_EXTRAS) -> asyncio.Future[Verdict]:
        """Hand records to the committer; the future gets the verdict. Only on the event loop's thread."""
        if extras is not NO_EXTRAS and extras.takes:
            # Now, not with the verdict: another branch must not
            # take the same signal while the commit is under way.
            self._signals = tuple(one for one in self._signals if one.number not in extras.takes)
            self._taken = self._taken.union(extras.takes)
        deferred = self.take_deferred() if self.deferred else ()
        try:
            if deferred and extras.may_be_refused:
                self._commits.start(self.tail, deferred)  # apart: they must stand even if the rest is refused
            elif deferred:
                # In the same commit and before the rest: a replay
                # must find the deferred records before what came after them.
                drafts = (*deferred, *drafts)
            return self._commits.start(self.tail, drafts, extras)
        except NineLivesError as error:
            return self._refused(error)

    def append(
        self, draft: Draft, extras: Extras = NO_EXTRAS, *, is_single: bool
    ) -> Awaitable[Verdict] | None:
        """Hand one record to the committer, as `write` does; return None if it is already durable."""
        if self.deferred:
            return self.write([draft], extras)
        try:
            return self._commits.append(self.tail, draft, extras, is_single=is_single)
        except NineLivesError as error:
            return self._refused(error)

    def commit_here(self, drafts: Sequence[Draft], extras: Extras) -> Verdict | asyncio.Future[Verdict]:
        """Hand records to the committer, as `write` does; return the verdict if there is one at once.

        A single branch on an idle loop commits on this thread, which saves two thread switches.
        """
        if self.deferred or extras.takes or not self.has_one_branch:
            return self.write(drafts, extras)
        return self._commit_here(drafts, extras)

    async def finish(self, draft: Draft, extras: Extras) -> None:
        """Hand the run's last record to the committer; return when it has its verdict."""
        # Deferred records are left out: they matter only to later records and effects, and there are none.
        written = self._commit_here((draft,), extras)
        if not isinstance(written, Verdict):
            await written

    def _commit_here(self, drafts: Sequence[Draft], extras: Extras) -> Verdict | asyncio.Future[Verdict]:
        try:
            return self._commits.commit_here(self.tail, drafts, extras)
        except NineLivesError as error:
            return self._refused(error)

    def _refused(self, error: NineLivesError) -> asyncio.Future[Verdict]:
        """Seal the execution; return what a ticket with this error gives: the end of a run awaits it."""
        self.seal(error)
        written: asyncio.Future[Verdict] = self.loop.create_future()
        written.set_exception(error)
        written.exception()  # marks it retrieved: not every record is waited for
        return written

    def note(self, kind: Kind, step: str, body: bytes, facts: Facts = NO_FACTS) -> None:
        """Write a record that no caller waits for; later records do not become durable before it."""
        if self.sealed is None:
            self.on_loop(lambda: self.write([(kind, step, body, (), facts)]))

    def defer(self, draft: Draft) -> None:
        """Queue a record that matters only to later records and effects: it is written with the next one."""
        if self.sealed is None:
            self.deferred = (*self.deferred, draft)

    def take_deferred(self) -> tuple[Draft, ...]:
        """Remove and return the queued records, to be written with the current one."""
        deferred, self.deferred = self.deferred, ()
        return deferred

    async def durable(self, written: Awaitable[Verdict]) -> Verdict:
        """Wait until something written is durable. Never returns once the execution is sealed.

        Only one caller may wait for `written`: cancelling this await cancels the future itself. Use
        `asyncio.shield` to share it.
        """
        try:
            verdict = await written
        except NineLivesError as error:
            self.seal(error)
        if self.sealed is not None:
            await self.forever()
        return verdict

    @property
    def is_clear(self) -> bool:
        """Whether `barrier` would not wait: nothing is queued or under way, and no gate is set."""
        return self._gate is None and not self.deferred and self.tail.sent == self.tail.answered

    async def barrier(self, *, is_read: bool = False) -> None:
        """Wait until everything written so far is durable, since the outside world may see what comes next.

        `is_read`: a read or decision comes next, which is no effect; deferred records may stay queued.
        """
        if self._gate is not None:
            await self._gate(self)
        # An effect must not begin before a limit that was left is on record: replay could find it reached.
        if self.deferred and not is_read:
            self.write(())
        answered = self._commits.all_answered(self.tail)
        if answered is not None:
            await answered
            await self.require_open()

    def when_answered(self) -> asyncio.Future[None] | None:
        """Return a future that is done once everything written so far has its verdict; None if it has."""
        return self._commits.all_answered(self.tail)

    async def flushed(self) -> None:
        """Wait until everything written so far has its verdict, good or bad; works while sealed, too."""
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
                return  # the caller that wrote it handles this verdict
        self.seal(error if error is not None else UsageError("a record was refused", run=self.run.id))

    def _committed(self, records: Sequence[Sequence[Any]], extras: Extras) -> None:
        hooks = self.hooks
        if hooks is not None and (extras is not NO_EXTRAS or hooks.wants_records):
            hooks.committed(self, records, extras)

    def take_row(self, row: RunRow) -> None:
        """Continue from the run's row as the store has it: it refused a commit and wrote nothing of it."""
        # Without a judge: the execution is sealed already, and `worker.escalation` handles the next verdict.
        self.tail = Tail(row, on_commit=self.tail.on_commit)

    def seal(self, why: NineLivesError) -> None:
        """Refuse every further call and record; the executor cleans up."""
        is_first = self.sealed is None
        super().seal(why)
        if is_first and self.hooks is not None and isinstance(why, Divergence):
            self.hooks.diverged(self, why)

    @property
    def has_lease(self) -> bool:
        """Whether a body may begin now: from the lease's end on, another worker may run the same one."""
        return self.clock.boot_ms() < self.lease.until_ms

    async def require_lease(self) -> None:
        """Return once bodies may begin again. Never returns if the lease is lost."""
        await self.lease.renewed()
        await self.require_open()

    # From outside -------------------------------------------------------------------------------

    def news(self) -> News:
        """Return the latest known run row, signals and inbox items, and the store's time."""
        return News(self.latest, self._signals, self._items, self.store.now_ms())

    def take_news(self, news: News) -> None:
        """Store the run's news and make its waits check again."""
        if news.run.news < self.latest.news:
            return  # stale: a later read arrived first
        self.latest, self._items = news.run, news.items
        # A read that began before our commit still lists the signals that it took: each is delivered once.
        self._signals = tuple(one for one in news.signals if one.number not in self._taken)
        self.apply_controls(news.run)
        self.wake_waits()

    def on_news(self, check: Callable[[], None]) -> None:
        """Call `check` whenever something may have happened that the run's code waits for."""
        self._on_news = (*self._on_news, check)

    @property
    def waits_for_news(self) -> bool:
        """Whether code of the run has ever waited for news."""
        return bool(self._on_news)

    def wake_waits(self) -> None:
        """Make every durable wait check again."""
        for check in self._on_news:
            check()

    def apply_controls(self, run: RunRow) -> None:
        """Apply the controls on the run's row: cancel, pause or resume."""
        # A run that undoes is ending anyway; to cancel its compensations would leave effects standing.
        if run.cancelling and not self.is_undoing:
            self.stop(RunCancelled("the run is being cancelled", run=run.id))
        elif run.paused and self.phase is OPEN:
            self.phase = Phase.PAUSED
        elif not run.paused and Phase.PAUSED in self.phase:
            self.phase &= ~Phase.PAUSED

    async def call_store(self, work: Callable[..., T], *values: Any) -> T:
        """Call the store in a thread: `work(store, *values)`. Store errors never reach the run's code.

        An unavailable store is retried; any other StoreError seals the execution, and this never returns.
        Raises every other error of `work`.
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
        """Sleep by a timer outside the run's context, so that it does not count as a timer of its code."""
        over: asyncio.Future[None] = self.loop.create_future()
        timer = self.loop.call_later(seconds, ring, over, context=Context())
        try:
            await over
        finally:
            timer.cancel()

    # Threads ------------------------------------------------------------------------------------

    def on_loop(self, work: Callable[[], object]) -> None:
        """Call `work` on the event loop's thread: now if we are on it, else in the order of the calls."""
        try:
            here = asyncio.get_running_loop() is self.loop
        except RuntimeError:
            here = False
        if here:
            work()
        elif not self.loop.is_closed():  # else abandoned code is being garbage-collected
            self.loop.call_soon_threadsafe(work)

    def derived(self, position: StepPosition) -> random.Random:
        """Return a random generator that is the same on every replay of this position."""
        # In the copied prefix of a fork, recorded arguments
        # come from the original run's numbers: use its key.
        passage = self.replay.passage
        key = position.key() if passage is None or passage.here is None else position.key_in(passage.here)
        return random.Random(blake2b(key.encode(), digest_size=16).digest())

    @property
    def is_replaying(self) -> bool:
        """Whether code outside of steps is still being replayed: recorded outcomes are to come."""
        return self.is_catching_up and FRAME.get() is None
