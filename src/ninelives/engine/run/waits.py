"""Durable waits: a branch waits for an event that may come in a second or in a month.

A wait is a pending future, never an exception thrown into the run's code. While the process lives and other
branches work, the wait stays in memory. When every branch waits and no body runs, the run parks: the
execution is sealed, its tasks are cancelled, and one commit records when the run is due and what it waits
for. The wait itself is not recorded: if we die here, the next worker makes the same call and checks again.

The waiting step records what ended its wait, and the outcome is delivered in order, as any step's: `Builtin`.
"""

from __future__ import annotations

import asyncio
import inspect
import math
from collections.abc import Awaitable, Callable, Sequence
from contextvars import Context
from typing import Any, Self, TypeVar

from msgspec import UNSET, Struct

from ninelives.core.errors import Divergence, NineLivesError, UsageError
from ninelives.core.journal.matching import Claimed
from ninelives.core.journal.replay import Recorded, read_body, signal_number, write_body
from ninelives.core.model.commit import Escalate, Outcome, Park, Verdict
from ninelives.core.model.run import Kind, News, StepKind
from ninelives.core.model.totals import BUILTIN, OUTCOMES, Facts
from ninelives.core.values.codec import Codec
from ninelives.core.values.exceptions import decode_error
from ninelives.core.values.fingerprint import Fingerprint
from ninelives.engine.commit.ticket import NOTHING, Draft, Extras
from ninelives.engine.context import StepPosition
from ninelives.engine.run import identity
from ninelives.engine.run.call_site import caller
from ninelives.engine.run.cancelled_steps import withdrawn
from ninelives.engine.run.current import execution_of
from ninelives.engine.run.execution import BranchTask, Execution
from ninelives.engine.run.lookup import StepLookup

T = TypeVar("T")
LONGEST_SECONDS = 100 * 366 * 86_400.0
Look = Callable[[News], T | Awaitable[T | None] | None]
"""Checks the run's news: returns how the wait ended, or None while it continues."""

SHORT_MS = 50
"""A run that is due within this time stays in memory: parking and claiming it again takes as long."""
LONGEST_TIMER_SECONDS = 60.0
"""The longest timer: the store's clock may be set while we sleep, so it is read again."""
PAUSED = "to be resumed"


class Parked(NineLivesError):
    """The reason for sealing an execution whose branches all wait. The run's code never sees it."""

    def __init__(self, change: Park | Escalate, run: str) -> None:
        super().__init__(f"the run is parked: {change.waits}", run=run)
        self.change = change


class Wait:
    """One wait of one branch. `woken` is the future that it awaits between two checks.

    `seen` is the number of the last news that it checked.
    """

    __slots__ = ("due_ms", "for_person", "seen", "what", "woken")

    def __init__(self, what: str, due_ms: int | None, for_person: bool) -> None:
        self.what, self.due_ms, self.for_person = what, due_ms, for_person
        self.seen = -1
        self.woken: asyncio.Future[None] | None = None


class Waits:
    """The durable waits of one execution."""

    def __init__(self, execution: Execution) -> None:
        self._execution = execution
        self._all: dict[Wait, None] = {}
        self._heard = 0
        self._timer: asyncio.TimerHandle | None = None
        execution.waits = self
        execution.delivery.at_rest += (self._consider,)

    @property
    def has_any(self) -> bool:
        """Whether a branch waits."""
        return bool(self._all)

    def enter(self, one: Wait) -> None:
        """Add a wait."""
        self._all[one] = None

    def leave(self, one: Wait) -> None:
        """Remove a wait."""
        del self._all[one]
        if not self._all and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def hear(self) -> None:
        """Make every waiting branch check again: there is news."""
        self._heard += 1
        for one in self._all:
            _wake(one)

    def news_for(self, one: Wait) -> News:
        """Return the current news for a wait. Clears `due_ms` if it has passed: a deadline fires once."""
        one.seen = self._heard
        news = self._execution.news()
        if one.due_ms is not None and one.due_ms <= news.now_ms:
            one.due_ms = None
        return news

    async def rest(self, one: Wait) -> None:
        """Wait for news or for `due_ms`; return at once if news came while the wait checked."""
        execution = self._execution
        if one.seen != self._heard:
            return
        one.woken = execution.loop.create_future()
        self._set_timer()
        execution.delivery.look()
        try:
            await one.woken
        finally:
            one.woken = None

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due_ms = self._next_due()
        if due_ms is not None:
            seconds = max(0.0, (due_ms - self._execution.store.now_ms()) / 1000)
            self._timer = self._execution.loop.call_later(
                min(seconds, LONGEST_TIMER_SECONDS), self._ring, context=Context()
            )

    def _ring(self) -> None:
        self._timer = None
        now_ms = self._execution.store.now_ms()
        for one in self._all:
            if one.due_ms is not None and one.due_ms <= now_ms:
                _wake(one)
        if any(one.due_ms is not None and one.due_ms > now_ms for one in self._all):
            self._set_timer()

    def _next_due(self) -> int | None:
        return min((one.due_ms for one in self._all if one.due_ms is not None), default=None)

    def _consider(self) -> None:
        """Park the run if nothing in it can move by itself. Called when its code is quiescent."""
        execution = self._execution
        if execution.sealed is not None or not self._all or execution.has_bodies:
            return
        if execution.has_ended and not execution.is_ending:
            return
        if any(one.woken is None or one.woken.done() for one in self._all):
            return
        answered = execution.when_answered()
        if answered is not None:
            answered.add_done_callback(lambda _: execution.delivery.look(), context=Context())
            return
        if execution.delivery.has_foreign():
            execution.delivery.look_later()
            return
        due_ms = self._next_due()
        if due_ms is not None and due_ms - execution.store.now_ms() <= SHORT_MS:
            return  # the timer wakes it
        execution.seal(Parked(self._change(due_ms), execution.run.id))

    def _change(self, due_ms: int | None) -> Park | Escalate:
        whats = dict.fromkeys(one.what for one in self._all)
        if PAUSED in whats:
            due_ms = self._execution.store.now_ms()  # it can be claimed as soon as it is resumed
        elif self._execution.deadline_ms is not None:
            due_ms = min(self._execution.deadline_ms, due_ms or self._execution.deadline_ms)
        told, seen = "; ".join(whats)[:500], self._execution.latest.news
        if due_ms is None and all(one.for_person for one in self._all):
            return Escalate(waits=told, news_seen=seen)
        return Park(due_ms=due_ms, waits=told, news_seen=seen)


def _wake(one: Wait) -> None:
    if one.woken is not None and not one.woken.done():
        one.woken.set_result(None)


async def wait(
    execution: Execution, what: str, look: Look[T], *, due_ms: int | None = None, for_person: bool = False
) -> T:
    """Wait, outside any body, until `look` returns something; the run may park meanwhile.

    `look` is called now, on each news of the run, and once when the store's clock has reached `due_ms`.
    `what` is shown to people: "for the signal 'paid'". `for_person`: only a person can end the wait; a run
    all of whose branches wait like that is escalated. When cancelled, it raises CancelledError and records
    nothing.
    """
    if execution.closed is not None:
        await turn_away(execution)
    if execution.is_catching_up:
        await execution.delivery.fresh()
    await execution.barrier()
    return await _wait(execution, Wait(what, due_ms, for_person), look)


def check_seconds(seconds: float, what: str) -> None:
    """Check a duration. Raises UsageError."""
    if type(seconds) not in (int, float) or not 0 <= seconds <= LONGEST_SECONDS:
        raise UsageError(f"{what}: {seconds!r} is no time", remedy="Give seconds, 0 or more")


async def turn_away(execution: Execution) -> None:
    """Block a caller while the run is closed: until the run is resumed, or until it ends."""
    while execution.closed is not None:
        if execution.sealed is not None or execution.is_leaving:
            await execution.forever()
        if execution.stopped is None and execution.is_ending and execution.is_acting:
            return  # the branch may settle the action that it has started
        if execution.stopped is not None or execution.is_ending:
            await execution.refuse()
        await until_resumed(execution)


async def until_resumed(execution: Execution) -> None:
    """Wait until the run is no longer paused; once all its branches wait, it parks."""
    one = Wait(PAUSED, None, for_person=False)
    await _wait(execution, one, lambda news: True if not news.run.paused else None)


async def _wait(execution: Execution, one: Wait, look: Look[T]) -> T:
    waits = execution.part(Waits)
    waits.enter(one)
    try:
        while True:
            await execution.require_open()
            found = look(waits.news_for(one))
            if inspect.isawaitable(found):
                found = await found
            if found is not None:
                return found
            await waits.rest(one)
    finally:
        waits.leave(one)


def deadline_ms(place: StepPosition, seconds: float) -> int:
    """Return the deadline `seconds` from now by the store's clock; on replay, the recorded deadline.

    Durations too short to park for are not recorded: after a crash they start again.
    """
    execution = execution_of(place)
    known = execution.replay.intents.get(place.id)
    said = read_body(known).v if known is not None else UNSET
    if said is not UNSET:
        return int(bytes(said))
    due_ms = execution.store.now_ms() + math.ceil(seconds * 1000)
    if seconds * 1000 > SHORT_MS:
        execution.note(Kind.INTENT, place.id, write_body(None, value=str(due_ms).encode()), BUILTIN)
    return due_ms


class FoundOutcome(Struct, frozen=True):
    """A recorded outcome and its value."""

    record: Recorded
    value: Any


class Builtin:
    """A built-in step that waits: found in the journal, or waited for, recorded and delivered in order.

        step = Builtin(execution, "sleep")
        found = await step.recorded()
        if found is None:
            ...
            await step.settle([(Kind.RESULT, step.id, write_body(None, value=b"null"))])

    Use it as `async with`: a wait that the run's code cancels is recorded as withdrawn, even if its outcome
    is already recorded but not delivered (see docs/decisions/0016). An asyncio timer that ends it raises
    UsageError, because replay cannot repeat it.
    """

    def __init__(self, execution: Execution, name: str, place: StepPosition | None = None) -> None:
        self.execution, self.place = execution, place or execution.place(name)
        self._is_withdrawn = False
        self._asked: Fingerprint | None = None
        self._began = execution.loop.time()
        task = asyncio.current_task()
        self._task = task if isinstance(task, BranchTask) else None

    @property
    def id(self) -> str:
        """Return the step's id in the journal."""
        return self.place.id

    async def __aenter__(self) -> Self:
        if self._task is not None:
            self._task.foreign_timer = None
        if self.execution.closed is not None:
            await turn_away(self.execution)
        return self

    async def __aexit__(self, _: object, error: BaseException | None, __: object) -> None:
        if not isinstance(error, asyncio.CancelledError) or self.execution.sealed is not None:
            return
        if not self._is_withdrawn:  # recorded before we raise: on replay it waits for the same cancellation
            self.execution.note(Kind.WITHDRAWN, self.id, write_body(self._asked), self._facts)
        if self._task is not None and self._task.foreign_timer is not None:
            raise UsageError(
                f"{self._task.foreign_timer} ended this wait, and would not do so on replay",
                run=self.execution.run.id,
                step=self.id,
                remedy="Use nl.timeout: it records who won",
            ) from None

    async def recorded(
        self,
        codec: Codec | None = None,
        *,
        asked: Fingerprint | None = None,
        is_effect: bool = False,
        child: str | None = None,
    ) -> FoundOutcome | None:
        """Return the outcome from the journal, when its delivery is due; None when there is none.

        Raises the recorded error of a failure. With a codec, `value` is decoded; a value that no longer fits
        is a divergence, which seals the execution. With `is_effect`, None means that the effect may start.
        """
        execution, self._asked = self.execution, asked
        found: Claimed | None = None
        if execution.is_resumed and not identity.is_past(execution, self.place):
            found = await identity.find(
                StepLookup(execution, self.place, asked, where=self._asks, is_effect=is_effect, child=child)
            )
        if isinstance(found, Recorded):
            # Nothing new to record: it is withdrawn again, or gets its recorded outcome in the same order.
            self._is_withdrawn = True
            if found.kind is Kind.WITHDRAWN:
                await withdrawn(execution, found)
            try:
                await execution.delivery.recorded(found.seq, found.at_ms)
            except asyncio.CancelledError:
                # A signal was taken, and the earlier worker died before it could record the withdrawal.
                self._is_withdrawn = signal_number(found) < 0
                self.give_back(found)
                raise
            execution.replayed += 1
            if found.kind is Kind.FAILURE:
                raise decode_error(bytes(found.body.e or b""))
            return FoundOutcome(found, await self._value_of(found, codec) if codec is not None else None)
        return None

    def _asks(self) -> str:
        return caller() or f"nl.{self.place.name}()"

    async def _value_of(self, found: Recorded, codec: Codec) -> Any:
        if found.body.r is not UNSET:
            return await self.value(codec, bytes(found.body.r))
        # Of a signal as it was sent, no field need claim every key.
        return await self.value(codec, bytes(found.body.v or b"null"), is_whole=signal_number(found) < 0)

    async def value(self, codec: Codec, data: bytes, *, is_whole: bool = True) -> Any:
        """Decode an outcome; a value that no longer fits is a divergence, which seals the execution."""
        try:
            return codec.recall(data, is_whole=is_whole)
        except Divergence as error:
            error.run, error.step = self.execution.run.id, self.id
            self.execution.seal(error)
            return await self.execution.forever()

    async def settle(self, drafts: Sequence[Draft], extras: Extras = NOTHING) -> Verdict:
        """Record an outcome and wait until it may be delivered.

        After a verdict other than COMMITTED (STALE, HELD) nothing was recorded; the news was read again, and
        the caller must check it.
        """
        execution = self.execution
        await execution.require_open()
        turn = execution.delivery.reserve()
        try:
            named = [self._named(draft) for draft in drafts]
            verdict = await execution.durable(execution.write(named, extras))
            if verdict.outcome is Outcome.COMMITTED:
                await execution.delivery.live(turn)
                execution.executed += 1
                return verdict
        except BaseException:
            # Cancelled between record and delivery: __aexit__ appends the withdrawal after the outcome.
            turn.withdraw()
            raise
        turn.withdraw()
        execution.delivery.look()
        await refresh(execution)
        return verdict

    def give_back(self, taken: Recorded) -> None:
        """Keep a signal that was taken but not delivered, for the next step that receives one."""
        number, execution = signal_number(taken), self.execution
        if number >= 0 and execution.sealed is None:
            execution.replay.returned[number] = taken
            if execution.waits is not None:
                execution.waits.hear()

    @property
    def _facts(self) -> Facts:
        return Facts(StepKind.BUILTIN, max(0, int((self.execution.loop.time() - self._began) * 1000)))

    def _named(self, draft: Draft) -> Draft:
        """Return an outcome record of this step with its facts added, unless it has them."""
        if draft[1] != self.id or draft[0] not in OUTCOMES or len(draft) == 5:
            return draft
        return (*draft[:3], draft[3] if len(draft) == 4 else (), self._facts)


async def refresh(execution: Execution) -> None:
    """Read the run's news from the store now."""
    run = execution.run.id
    for news in await execution.call_store(lambda store: store.read_news({run: -1})):
        execution.hear(news)
