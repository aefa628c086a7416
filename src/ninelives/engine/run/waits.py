"""Durable waits: a branch waits for something that may come in a second or in a month.

A wait is a pending future, never an exception thrown into the run's code. While the process lives and other
branches are at work, it stays in memory; when every branch waits and no body runs, the run parks: the
execution is sealed, its tasks are cancelled, and one commit says when it falls due and what it waits for.
Nothing of a wait itself is recorded: if we die here, the next life asks for it again and looks again.

What ends a wait is recorded by who waited, and told in its turn, as the outcome of a step is: `Builtin`.
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
"""Tells how a wait ended, or None while it goes on."""

SHORT_MS = 50
"""What is due within this time is waited for in memory: leaving and coming back costs as much."""
LONGEST_TIMER_SECONDS = 60.0
"""A clock may be set while we sleep; no timer trusts it for longer."""
PAUSED = "to be resumed"


class Parked(NineLivesError):
    """Why an execution is sealed whose branches all wait. No code of the run ever sees it."""

    def __init__(self, change: Park | Escalate, run: str) -> None:
        super().__init__(f"the run is parked: {change.waits}", run=run)
        self.change = change


class Wait:
    """One branch that waits; `woken` is set while it rests."""

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
        """Tell whether a branch waits."""
        return bool(self._all)

    def enter(self, one: Wait) -> None:
        """Count a wait in."""
        self._all[one] = None

    def leave(self, one: Wait) -> None:
        """Count a wait out."""
        del self._all[one]
        if not self._all and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def hear(self) -> None:
        """Let every branch look again: there is news."""
        self._heard += 1
        for one in self._all:
            _wake(one)

    def news_for(self, one: Wait) -> News:
        """Return what a wait is to look at now; when its time has come, this is the look that sees it."""
        one.seen = self._heard
        news = self._execution.news()
        if one.due_ms is not None and one.due_ms <= news.now_ms:
            one.due_ms = None
        return news

    async def rest(self, one: Wait) -> None:
        """Wait for news or the time, unless either has come while the wait looked."""
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
        """Park the run if nothing in it can move by itself. Called when its code is at rest."""
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
            return  # the timer is set
        execution.seal(Parked(self._change(due_ms), execution.run.id))

    def _change(self, due_ms: int | None) -> Park | Escalate:
        whats = dict.fromkeys(one.what for one in self._all)
        if PAUSED in whats:
            due_ms = self._execution.store.now_ms()  # it goes on as soon as it is resumed
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
    """Wait until `look` gives something, outside any body; the run may leave memory meanwhile.

    `look` is called now, on news of the run, and once when `due_ms` of the store's clock has come. `what`
    is for people: "for the signal 'paid'". With `for_person`, only a person can end it: a run of which all
    branches wait so is escalated. Cancelled, it raises CancelledError and nothing is recorded.
    """
    if execution.closed is not None:
        await turn_away(execution)
    if execution.is_catching_up:
        await execution.delivery.fresh()
    await execution.barrier()
    return await _wait(execution, Wait(what, due_ms, for_person), look)


def check_seconds(seconds: float, what: str) -> None:
    """Check a time. Raises UsageError."""
    if type(seconds) not in (int, float) or not 0 <= seconds <= LONGEST_SECONDS:
        raise UsageError(f"{what}: {seconds!r} is no time", remedy="Give seconds, 0 or more")


async def turn_away(execution: Execution) -> None:
    """Hold up a caller while the run is closed: until it is resumed, or until the end."""
    while execution.closed is not None:
        if execution.sealed is not None or execution.is_leaving:
            await execution.forever()
        if execution.stopped is None and execution.is_ending and execution.is_acting:
            return  # it settles what it has started
        if execution.stopped is not None or execution.is_ending:
            await execution.refuse()
        await until_resumed(execution)


async def until_resumed(execution: Execution) -> None:
    """Wait until the run is no longer paused; when everything in it waits, it is parked."""
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
    """Return when a time from now is over, by the store's clock; in a later life, when it was to be over.

    Times too short to park for are not recorded: a crash begins them anew.
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
    """A step of our own that waits: found in the journal, or waited for, recorded, told in its turn.

        step = Builtin(execution, "sleep")
        found = await step.recorded()
        if found is None:
            ...
            await step.settle([(Kind.RESULT, step.id, write_body(None, value=b"null"))])

    Use it as `async with`: a wait that the run's code cancels is recorded as withdrawn, also when what ended
    it is on record already and was not told, and a timer of asyncio's that ends it is refused.
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
        if not self._is_withdrawn:  # first: on replay it waits to be cancelled again, by whatever did it
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
        """Return the outcome that is in the journal, in its turn; None when there is none.

        Raises what was recorded as a failure. With a codec, `value` is decoded; a value that no longer fits
        is a divergence, which seals the execution. With `is_effect`, None means that it may be done now.
        """
        execution, self._asked = self.execution, asked
        found: Claimed | None = None
        if execution.is_resumed and not identity.is_past(execution, self.place):
            found = await identity.find(
                StepLookup(execution, self.place, asked, where=self._asks, is_effect=is_effect, child=child)
            )
        if isinstance(found, Recorded):
            self._is_withdrawn = True  # or it comes to what it came to then, in the same order
            if found.kind is Kind.WITHDRAWN:
                await withdrawn(execution, found)
            try:
                await execution.delivery.recorded(found.seq, found.at_ms)
            except asyncio.CancelledError:
                # Taken, and the life before this died before it could say that its code had gone on without.
                self._is_withdrawn = signal_number(found) < 0
                self.give_back(found)
                raise
            execution.replayed += 1
            if found.kind is Kind.FAILURE:
                raise decode_error(bytes(found.body.e or b""))
            data = bytes(found.body.v or b"null")
            return FoundOutcome(found, await self.value(codec, data) if codec is not None else None)
        return None

    def _asks(self) -> str:
        return caller() or f"nl.{self.place.name}()"

    async def value(self, codec: Codec, data: bytes) -> Any:
        """Decode an outcome; one that does not fit any more is a divergence, which seals the execution."""
        try:
            return codec.recall(data)
        except Divergence as error:
            error.run, error.step = self.execution.run.id, self.id
            self.execution.seal(error)
            return await self.execution.forever()

    async def settle(self, drafts: Sequence[Draft], extras: Extras = NOTHING) -> Verdict:
        """Record an outcome and wait for its turn to be told.

        A verdict other than COMMITTED (STALE, HELD) was not recorded: read the news and look again.
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
            # Cancelled between the record and its telling: the record of the withdrawal comes after it.
            turn.withdraw()
            raise
        turn.withdraw()
        execution.delivery.look()
        await refresh(execution)
        return verdict

    def give_back(self, taken: Recorded) -> None:
        """Keep a signal that was taken and not told for the next step that receives it."""
        number, execution = signal_number(taken), self.execution
        if number >= 0 and execution.sealed is None:
            execution.replay.returned[number] = taken
            if execution.waits is not None:
                execution.waits.hear()

    @property
    def _facts(self) -> Facts:
        return Facts(StepKind.BUILTIN, max(0, int((self.execution.loop.time() - self._began) * 1000)))

    def _named(self, draft: Draft) -> Draft:
        """Return a record of this step with what is known of it, unless it says so itself."""
        if draft[1] != self.id or draft[0] not in OUTCOMES or len(draft) == 5:
            return draft
        return (*draft[:3], draft[3] if len(draft) == 4 else (), self._facts)


async def refresh(execution: Execution) -> None:
    """Read the run's news now."""
    run = execution.run.id
    for news in await execution.call_store(lambda store: store.read_news({run: -1})):
        execution.hear(news)
