"""Durable waits: a branch waits for an event that may come in a second or in a month.

A wait is a pending future, never an exception thrown into the run's code. While the process lives and other
branches work, the wait stays in memory. When every branch waits and no body runs, the run parks: the
execution is sealed, its tasks are cancelled, and one commit records when the run is due and what it waits
for. The wait itself is not recorded: if we die here, the next worker makes the same call and checks again.

The waiting step records what ended its wait, and the outcome is delivered in order, as any step's
(`step.envelope.Builtin`).

A step that the run's code cancelled in an earlier execution waits, too: until the code cancels it again. A
run that becomes quiescent without that (nothing in it runs, waits or is still to be delivered) would wait
without end: that is a divergence, which escalates as any other. See docs/decisions/0016.
"""

from __future__ import annotations

import asyncio
import inspect
import math
from collections.abc import Awaitable, Callable
from contextvars import Context
from typing import TypeVar

from msgspec import UNSET

from ninelives.core.durations import LONGEST_MS
from ninelives.core.errors import Divergence, NineLivesError, UsageError
from ninelives.core.journal.replay import Recorded, read_body, write_body
from ninelives.core.model.commit import Escalate, Park
from ninelives.core.model.run import Kind, News
from ninelives.core.model.totals import BUILTIN
from ninelives.engine.context import StepPosition
from ninelives.engine.run.current import execution_of
from ninelives.engine.run.execution import Execution
from ninelives.engine.run.lifecycle import OPEN, Phase

T = TypeVar("T")
LONGEST_SECONDS = LONGEST_MS / 1000
Check = Callable[[News], T | Awaitable[T | None] | None]
"""Checks the run's news: returns how the wait ended, or None while it continues."""

SHORT_MS = 50
"""A run that is due within this time stays in memory: parking and claiming it again takes as long."""
LONGEST_TIMER_SECONDS = 60.0
"""The longest timer: the store's clock may be set while we sleep, so it is read again."""
PAUSED = "to be resumed"
PATIENCE_SECONDS = 1.0
"""How long a run must be idle before a missing cancellation is a divergence: other code may cancel."""


class Parked(NineLivesError):
    """The reason for sealing an execution whose branches all wait. The run's code never sees it."""

    def __init__(self, change: Park | Escalate, run: str) -> None:
        super().__init__(f"the run is parked: {change.waits}", run=run)
        self.change = change


class Wait:
    """One wait of one branch. `woken` is the future that it awaits between two checks.

    `seen` is the number of the last news that it checked. `stays_ms`: due within this time, it stays in
    memory.
    """

    __slots__ = ("due_ms", "for_person", "seen", "stays_ms", "what", "woken")

    def __init__(self, what: str, due_ms: int | None, for_person: bool, stays_ms: int | None = None) -> None:
        self.what, self.due_ms, self.for_person = what, due_ms, for_person
        self.stays_ms = SHORT_MS if stays_ms is None else stays_ms
        self.seen = -1
        self.woken: asyncio.Future[None] | None = None


class Waits:
    """The durable waits of one execution."""

    def __init__(self, execution: Execution) -> None:
        self._execution = execution
        self._all: dict[Wait, None] = {}
        self._news = 0
        self._timer: asyncio.TimerHandle | None = None
        execution.on_news(self.check_all)
        # Called only when the code is quiescent: earlier, a branch could still be on its way to a step.
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

    def check_all(self) -> None:
        """Make every waiting branch check again: there is news."""
        # Counted even while no branch sleeps: a wait that is checking now finds that it must check again.
        self._news += 1
        for one in self._all:
            _wake(one)

    def news_for(self, one: Wait) -> News:
        """Return the current news for a wait. Clears `due_ms` if it has passed: a deadline fires once."""
        one.seen = self._news
        news = self._execution.news()
        if one.due_ms is not None and one.due_ms <= news.now_ms:
            one.due_ms = None
        return news

    async def rest(self, one: Wait) -> None:
        """Wait for news or for `due_ms`; return at once if news came while the wait checked."""
        execution = self._execution
        # News came while `check` read the store: to sleep now would lose it.
        if one.seen != self._news:
            return
        one.woken = execution.loop.create_future()
        self._set_timer()
        execution.delivery.check_soon()
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
        # The agent has returned: its other branches are about to be cancelled, and the run ends.
        if execution.has_ended and Phase.LANDING not in execution.phase:
            return
        # A wait that is being checked, or was just woken, may go on.
        if any(one.woken is None or one.woken.done() for one in self._all) or execution.delivery.is_kept:
            return
        # A record without a verdict may be refused, which makes its branch go on.
        answered = execution.when_answered()
        if answered is not None:
            # In no run's context: the callback itself must not make the run look busy.
            answered.add_done_callback(lambda _: execution.delivery.check_soon(), context=Context())
            return
        if execution.delivery.has_foreign():
            execution.delivery.check_later()
            return
        due_ms = self._next_due()
        if due_ms is not None:
            stays_ms = max(one.stays_ms for one in self._all if one.due_ms == due_ms)
            if due_ms - execution.store.now_ms() <= stays_ms:
                return  # the timer wakes it
        execution.seal(Parked(self._change(due_ms), execution.run.id))

    def _change(self, due_ms: int | None) -> Park | Escalate:
        whats = dict.fromkeys(one.what for one in self._all)
        if PAUSED in whats:
            due_ms = self._execution.store.now_ms()  # it can be claimed as soon as it is resumed
        elif self._execution.deadline_ms is not None:
            # A worker must claim the run at its time limit, even if nothing else happens to it.
            due_ms = min(self._execution.deadline_ms, due_ms or self._execution.deadline_ms)
        # The store compares `seen`: news that arrives before the
        # commit makes the run due, and is not slept through.
        text, seen = "; ".join(whats)[:500], self._execution.latest.news
        if due_ms is None and all(one.for_person for one in self._all):
            return Escalate(waits=text, news_seen=seen)
        return Park(due_ms=due_ms, waits=text, news_seen=seen)


def _wake(one: Wait) -> None:
    if one.woken is not None and not one.woken.done():
        one.woken.set_result(None)


async def wait(
    execution: Execution,
    what: str,
    check: Check[T],
    *,
    due_ms: int | None = None,
    for_person: bool = False,
    stays_ms: int | None = None,
) -> T:
    """Wait, outside any body, until `check` returns something; the run may park meanwhile.

    `check` is called now, on each news of the run, and once when the store's clock has reached `due_ms`.
    `what` is shown to people: "for the signal 'paid'". `for_person`: only a person can end the wait; a run
    all of whose branches wait like that is escalated. Due within `stays_ms`, the run stays in memory. When
    cancelled, it raises CancelledError and records nothing.
    """
    await ready(execution)
    return await _wait(execution, Wait(what, due_ms, for_person, stays_ms), check)


async def wait_until(execution: Execution, due_ms: int, what: str) -> None:
    """Wait until the store's clock has reached `due_ms`; the run may park meanwhile."""
    await wait(execution, what, lambda news: True if news.now_ms >= due_ms else None, due_ms=due_ms)


def check_seconds(seconds: float, what: str) -> None:
    """Check a duration. Raises UsageError."""
    if type(seconds) not in (int, float) or not 0 <= seconds <= LONGEST_SECONDS:
        raise UsageError(f"{what}: {seconds!r} is no time", remedy="Give seconds, 0 or more")


async def ready(execution: Execution) -> None:
    """Wait until something new may begin: replay is over, and all that it depends on is durable."""
    if execution.phase is not OPEN:
        await turn_away(execution)
    if execution.is_catching_up:
        await execution.delivery.fresh()
    await execution.barrier()
    await execution.require_open()


async def turn_away(execution: Execution) -> None:
    """Block a caller while the run is closed: until the run is resumed, or until it ends."""
    while (phase := execution.phase) is not OPEN:
        if phase & (Phase.SEALED | Phase.LEAVING):
            await execution.forever()
        if Phase.LANDING in phase and Phase.STOPPED not in phase and execution.is_acting:
            return  # the branch may settle the action that it has started
        if phase & (Phase.STOPPED | Phase.LANDING):
            await execution.refuse()
        await until_resumed(execution)


async def until_resumed(execution: Execution) -> None:
    """Wait until the run is no longer paused; once all its branches wait, it parks."""
    one = Wait(PAUSED, None, for_person=False)
    await _wait(execution, one, lambda news: True if not news.run.paused else None)


async def _wait(execution: Execution, one: Wait, check: Check[T]) -> T:
    waits = execution.component(Waits)
    waits.enter(one)
    try:
        while True:
            await execution.require_open()
            found = check(waits.news_for(one))
            if inspect.isawaitable(found):
                found = await found
            if found is not None:
                return found
            await waits.rest(one)
    finally:
        waits.leave(one)


def deadline_ms(position: StepPosition, seconds: float, shown: dict[str, str] | None = None) -> int:
    """Return the deadline `seconds` from now by the store's clock; on replay, the recorded deadline.

    Durations too short to park for are not recorded: after a crash they start again.
    """
    execution = execution_of(position)
    known = execution.replay.intents.get(position.id)
    said = read_body(known).v if known is not None else UNSET
    if said is not UNSET:
        return int(bytes(said))
    due_ms = execution.store.now_ms() + math.ceil(seconds * 1000)
    if seconds * 1000 > SHORT_MS:
        # Not awaited: parking waits for its verdict, and a crash before that only starts the time again.
        body = write_body(None, value=str(due_ms).encode(), shown=shown)
        execution.note(Kind.INTENT, position.id, body, BUILTIN)
    return due_ms


async def refresh(execution: Execution) -> None:
    """Read the run's news from the store now."""
    run = execution.run.id
    # -1: whatever we have seen, read it now; a commit has just been refused because of it.
    for news in await execution.call_store(lambda store: store.read_news({run: -1})):
        execution.take_news(news)


# Steps that the run's code cancelled -----------------------------------------------------------------


class Withdrawals:
    """The withdrawn steps of one execution that wait to be cancelled."""

    def __init__(self, execution: Execution) -> None:
        self._execution = execution
        self._all: dict[int, Recorded] = {}
        self._since: float | None = None
        execution.delivery.at_rest += (self._consider,)

    async def wait(self, found: Recorded) -> None:
        """Wait until the run's code cancels the step. Never returns."""
        self._all[found.seq] = found
        self._execution.delivery.check_soon()
        try:
            await self._execution.forever()
        finally:
            del self._all[found.seq]

    def _consider(self) -> None:
        """Seal the execution if nothing in it can move any more. Called when its code is quiescent."""
        execution = self._execution
        if execution.sealed is not None or execution.has_ended or not self._all:
            return
        if execution.stopped is not None or execution.has_bodies or execution.component(Waits).has_any:
            self._since = None  # when a body or a wait ends, we are called again
            return
        now = execution.loop.time()
        is_busy = execution.when_answered() is not None or execution.delivery.has_foreign()
        if self._since is None or is_busy:
            self._since = now
        if now < self._since + PATIENCE_SECONDS:
            execution.delivery.check_later()
            return
        execution.seal(_divergence(execution.run.id, self._all[min(self._all)]))


async def await_cancellation(execution: Execution, found: Recorded) -> None:
    """Wait until the run's code cancels a step, as it did before. Never returns."""
    await execution.component(Withdrawals).wait(found)


def _divergence(run: str, found: Recorded) -> Divergence:
    return Divergence(
        f"record {found.seq} says that this step was cancelled, and now nothing cancels it: "
        "the run would wait without end",
        run=run,
        step=found.step,
        remedy="Nothing was executed. Put back the code that cancelled it, or give the step another name "
        "so that it runs again; a body must not cancel its own task",
    )
