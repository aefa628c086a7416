"""Observers: code that is notified of what the engine does, and changes nothing.

The engine calls `Hooks`, each time behind one `is None` test: without an observer no event is created. Body
events come on the thread and in the context of the body, all others on the event loop's thread. An observer
must not block. What it raises is logged once and dropped. See docs/decisions/0023.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from msgspec import Struct

from ninelives.core.errors import Divergence, InvariantViolation
from ninelives.core.governance.judged import Judged
from ninelives.core.journal.replay import Recorded
from ninelives.core.journal.resources import Target
from ninelives.core.model.commit import Change, End, Escalate, Park
from ninelives.core.model.inbox import ItemKind, NewItem
from ninelives.core.model.run import Kind, RunRow, State, StepKind
from ninelives.core.model_calls.answered import Answered
from ninelives.engine.commit.ticket import Extras
from ninelives.engine.context import FRAME, Frame, Running, of_frame, of_row, of_run
from ninelives.engine.spec.registry import Step
from ninelives.store import Store

LOGGER = logging.getLogger("ninelives")


# Events -------------------------------------------------------------------------------------------


class StepDeclared(Struct, frozen=True):
    """The code declared a step. Only observers of the process receive it: there may be no runtime yet."""

    declared: Step


class RunEvent(Struct, frozen=True, kw_only=True):
    """Something happened to a run that is executed here. `epoch` counts its owners, `turn` its turns."""

    run: str
    agent: str
    epoch: int
    turn: int
    session: str = ""


class LifeBegan(RunEvent, frozen=True, kw_only=True):
    """This process executes the run from now on; its journal is read. Sent in the context of the run's task.

    `row` is the run as it was claimed; an observer may read `store`, but not on the event loop.
    """

    row: RunRow
    store: Store


class LifeLeft(RunEvent, frozen=True, kw_only=True):
    """The run is no longer executed here: it ended, waits, or belongs to another owner. As `LifeBegan`."""


class StepEvent(RunEvent, frozen=True, kw_only=True):
    """Something happened to a step. `step` is its id in the journal; times are of the wall clock."""

    step: str
    name: str
    kind: StepKind
    attempt: int
    at_ms: int


class BodyBegan(StepEvent, frozen=True, kw_only=True):
    """A body begins: all that comes before it (lookup, approval, intent, lease) is done.

    `admitted_ms_ago`: how long ago this process last checked its lease.
    """

    declared: Step
    key: str
    admitted_ms_ago: int


class BodyEnded(StepEvent, frozen=True, kw_only=True):
    """A body returned `value` or raised `error`, and a model call was `answered`; nothing is recorded yet."""

    declared: Step
    took_ms: int
    value: Any = None
    error: BaseException | None = None
    answered: Answered | None = None


class AttemptFailed(StepEvent, frozen=True, kw_only=True):
    """An attempt failed, and another one follows after `pause_seconds`; `of` is the most attempts."""

    error: BaseException
    pause_seconds: float
    of: int


class KeyRead(StepEvent, frozen=True, kw_only=True):
    """A body asked for its idempotency key."""


class ArgumentsChanged(RunEvent, frozen=True, kw_only=True):
    """A body changed its arguments, which replay cannot repeat."""

    declared: Step


class StepReplayed(RunEvent, frozen=True, kw_only=True):
    """A call got its recorded outcome instead of being executed."""

    declared: Step
    record: Recorded


class CallDenied(RunEvent, frozen=True, kw_only=True):
    """A policy denied a call; nothing of it was done. `judged` says by which rules, if a policy judged it."""

    declared: Step
    step: str
    judged: Judged | None
    why: str


class CallHeld(RunEvent, frozen=True, kw_only=True):
    """A call must wait, for what `what` says: a halt, a breaker, a budget. Sent each time it asks again."""

    step: str
    what: str


class RunDiverged(RunEvent, frozen=True, kw_only=True):
    """The code does not fit the journal; the run stops before anything happens."""

    error: Divergence


class RecordsCommitted(RunEvent, frozen=True, kw_only=True):
    """Records became durable: kind and step of each. `change` is the run's new state, if it changed."""

    records: tuple[tuple[Kind, str], ...]
    change: Change | None


class RunParked(RunEvent, frozen=True, kw_only=True):
    """The run left its worker, durably, until something happens or a time comes."""

    waits: str
    due_ms: int | None


class RunEscalation(RunEvent, frozen=True, kw_only=True):
    """The run left its worker, durably, until a person answers."""

    waits: str
    items: tuple[tuple[str, ItemKind], ...]


class ItemsOpened(RunEvent, frozen=True, kw_only=True):
    """The run asks a person, durably; it does not escalate: nothing is wrong with it."""

    items: tuple[NewItem, ...]


class RunEnded(RunEvent, frozen=True, kw_only=True):
    """The run's end is durable. `error` says why it failed; empty if it did not."""

    state: State
    error: str = ""


class AgentRaised(RunEvent, frozen=True, kw_only=True):
    """The agent's own code raised."""

    error: BaseException


class ResourceChecked(RunEvent, frozen=True, kw_only=True):
    """A resource that the run holds was checked. `stale` says what changed, if anything did."""

    target: Target
    stale: str | None


class RunRecovered(Struct, frozen=True, kw_only=True):
    """A run whose worker had died made its first durable progress here."""

    run: str
    agent: str
    epoch: int
    left_by: str
    deaths: int
    taken_ms: int
    progress_ms: int
    replayed: int


# Observers ----------------------------------------------------------------------------------------


class Observer:
    """Override the methods for the events that you want; the others cost nothing."""

    def declared(self, event: StepDeclared) -> None:
        """Note that a step was declared."""

    def life_began(self, event: LifeBegan) -> None:
        """Note that a run is executed here."""

    def life_left(self, event: LifeLeft) -> None:
        """Note that a run is no longer executed here."""

    def body_began(self, event: BodyBegan) -> None:
        """Note that a body begins."""

    def body_ended(self, event: BodyEnded) -> None:
        """Note that a body has ended."""

    def attempt_failed(self, event: AttemptFailed) -> None:
        """Note that an attempt failed and is retried."""

    def key_read(self, event: KeyRead) -> None:
        """Note that a body asked for its key."""

    def arguments_changed(self, event: ArgumentsChanged) -> None:
        """Note that a body changed its arguments."""

    def replayed(self, event: StepReplayed) -> None:
        """Note that a recorded outcome was delivered."""

    def denied(self, event: CallDenied) -> None:
        """Note that a policy denied a call."""

    def held(self, event: CallHeld) -> None:
        """Note that a call must wait."""

    def diverged(self, event: RunDiverged) -> None:
        """Note that the code does not fit the journal."""

    def committed(self, event: RecordsCommitted) -> None:
        """Note that records are durable."""

    def parked(self, event: RunParked) -> None:
        """Note that a run waits without a worker."""

    def escalated(self, event: RunEscalation) -> None:
        """Note that a run waits for a person."""

    def items_opened(self, event: ItemsOpened) -> None:
        """Note that a run asks a person."""

    def ended(self, event: RunEnded) -> None:
        """Note that a run has ended."""

    def agent_raised(self, event: AgentRaised) -> None:
        """Note that the agent's code raised."""

    def resource_checked(self, event: ResourceChecked) -> None:
        """Note the state of a held resource."""

    def recovered(self, event: RunRecovered) -> None:
        """Note that a run that was taken over has made progress."""


_METHODS = tuple(name for name in vars(Observer) if not name.startswith("_"))
_PROCESS: list[Observer] = []
"""Observers of all runtimes of this process, and of declarations."""


def observe_process(observer: Observer) -> Callable[[], None]:
    """Notify an observer of declarations from now on, and of runtimes entered from now on.

    Returns a function that ends it for declarations and for runtimes entered later.
    """
    _PROCESS.append(observer)
    return lambda: _PROCESS.remove(observer)


def declared(step: Step) -> None:
    """Report a declaration to the observers of the process."""
    if _PROCESS:
        Hooks(_PROCESS).declared(step)


def hooks_for(observers: Iterable[Observer]) -> Hooks | None:
    """Return the hooks of a runtime with these observers and those of the process; None without any."""
    found = (*_PROCESS, *observers)
    return Hooks(found) if found else None


def beside(hooks: Hooks | None, observer: Observer) -> Hooks:
    """Return hooks for the same observers and one more."""
    return Hooks((*(hooks.observers if hooks is not None else ()), observer))


@contextmanager
def living(hooks: Hooks | None, run: RunRow, store: Store) -> Iterator[None]:
    """Report the beginning and the end of a run's life in this process."""
    if hooks is None:
        yield
        return
    hooks.life_began(run, store)
    try:
        yield
    finally:
        hooks.life_left(run)


# The engine's side --------------------------------------------------------------------------------


class Hooks:
    """Makes the events and sends them to the observers that override their method."""

    __slots__ = ("_calls", "_faulty", "observers", "wants_bodies", "wants_records")

    def __init__(self, observers: Iterable[Observer]) -> None:
        self.observers = tuple(observers)
        self._faulty: set[object] = set()
        self._calls: dict[str, tuple[Callable[[Any], None], ...]] = {}
        for name in _METHODS:
            own = getattr(Observer, name)
            # Only overridden methods: an event that no observer wants is not made at all.
            found = tuple(getattr(one, name) for one in self.observers if getattr(type(one), name) is not own)
            if found:
                self._calls[name] = found
        self.wants_bodies = "body_began" in self._calls or "body_ended" in self._calls
        self.wants_records = "committed" in self._calls
        """Whether commits of plain records are reported; others always are: of a new state, or with items."""

    def _send(self, calls: Iterable[Callable[[Any], None]], event: object) -> None:
        for call in calls:
            try:
                call(event)
            except KeyboardInterrupt:
                raise
            except BaseException:
                what = call, type(event)
                # Once: an observer that fails at every step would flood the log.
                if what not in self._faulty:
                    self._faulty.add(what)
                    LOGGER.exception("an observer of %s raised; the run goes on", type(event).__name__)

    def declared(self, step: Step) -> None:
        """Report a declaration."""
        if calls := self._calls.get("declared"):
            self._send(calls, StepDeclared(step))

    def life_began(self, run: RunRow, store: Store) -> None:
        """Report that a run is executed here."""
        if calls := self._calls.get("life_began"):
            self._send(calls, LifeBegan(**of_row(run), row=run, store=store))

    def life_left(self, run: RunRow) -> None:
        """Report that a run is no longer executed here."""
        if calls := self._calls.get("life_left"):
            self._send(calls, LifeLeft(**of_row(run)))

    def around(self, step: Step, ask: Callable[..., Any] | None = None) -> Callable[..., Any]:
        """Return a step's function, or what asks its ways, with its beginning and end reported."""
        if step.enclose is None:
            return self._watched(step, ask or step.function, step.is_async or ask is not None)
        # Inside the user's transaction: a fault injected at the end of the body comes before its commit.
        body: Any = step.function
        return step.enclose(self._watched(step, body.__wrapped__, step.is_async))

    def _watched(self, step: Step, function: Callable[..., Any], is_async: bool) -> Callable[..., Any]:
        if is_async:

            @functools.wraps(function)
            async def body(*args: Any, **kwargs: Any) -> Any:
                end = self._begin(step)
                try:
                    value = await function(*args, **kwargs)
                except BaseException as error:
                    end(None, error)
                    raise
                end(value, None)
                return value

            return body

        @functools.wraps(function)
        def plain(*args: Any, **kwargs: Any) -> Any:
            end = self._begin(step)
            try:
                value = function(*args, **kwargs)
            except BaseException as error:
                end(None, error)
                raise
            end(value, None)
            return value

        return plain

    def _begin(self, step: Step) -> Callable[[Any, BaseException | None], None]:
        """Report that a body begins; return a function that reports its end."""
        frame = FRAME.get()
        if frame is None:
            raise InvariantViolation(f"the body of {step.name} runs outside its frame")
        # Kept: after its time limit a plain body runs on, while its frame counts the next attempt.
        known, clock = of_frame(frame), frame.position.execution.clock
        began_ms = clock.boot_ms()
        if calls := self._calls.get("body_began"):
            ago_ms = max(0, began_ms - frame.admitted_ms) if frame.admitted_ms else 0
            event = BodyBegan(**known, declared=step, key=frame.position.key(), admitted_ms_ago=ago_ms)
            self._send(calls, event)

        def end(value: Any, error: BaseException | None) -> None:
            if calls := self._calls.get("body_ended"):
                took_ms, how = clock.boot_ms() - began_ms, frame.answered
                timed = known | {"at_ms": clock.now_ms(), "took_ms": took_ms, "answered": how}
                self._send(calls, BodyEnded(**timed, declared=step, value=value, error=error))

        return end

    def _report_step(self, name: str, kind: type[StepEvent], frame: Frame, /, **known: Any) -> None:
        if calls := self._calls.get(name):
            self._send(calls, kind(**of_frame(frame), **known))

    def attempt_failed(self, frame: Frame, error: BaseException, pause_seconds: float, *, of: int) -> None:
        """Report an attempt that failed and is retried."""
        known = {"error": error, "pause_seconds": pause_seconds, "of": of}
        self._report_step("attempt_failed", AttemptFailed, frame, **known)

    def key_read(self, frame: Frame) -> None:
        """Report that a body asked for its key."""
        self._report_step("key_read", KeyRead, frame)

    def _report_run(self, name: str, kind: type[RunEvent], execution: Running, /, **known: Any) -> None:
        if calls := self._calls.get(name):
            self._send(calls, kind(**of_run(execution), **known))

    def arguments_changed(self, execution: Running, step: Step) -> None:
        """Report that a body changed its arguments."""
        self._report_run("arguments_changed", ArgumentsChanged, execution, declared=step)

    def replayed(self, execution: Running, step: Step, record: Recorded) -> None:
        """Report that a recorded outcome is delivered."""
        self._report_run("replayed", StepReplayed, execution, declared=step, record=record)

    def denied(self, execution: Running, step: Step, at: str, judged: Judged | None, why: str) -> None:
        """Report that a policy denied a call."""
        self._report_run("denied", CallDenied, execution, declared=step, step=at, judged=judged, why=why)

    def held(self, execution: Running, at: str, what: str) -> None:
        """Report that a call must wait."""
        self._report_run("held", CallHeld, execution, step=at, what=what)

    def diverged(self, execution: Running, error: Divergence) -> None:
        """Report that the code does not fit the journal."""
        self._report_run("diverged", RunDiverged, execution, error=error)

    def agent_raised(self, execution: Running, error: BaseException) -> None:
        """Report that the agent's code raised."""
        self._report_run("agent_raised", AgentRaised, execution, error=error)

    def resource_checked(self, execution: Running, target: Target, stale: str | None) -> None:
        """Report the state of a held resource."""
        self._report_run("resource_checked", ResourceChecked, execution, target=target, stale=stale)

    def committed(self, execution: Running, records: Sequence[Sequence[Any]], extras: Extras) -> None:
        """Report records that are durable, and the run's new state if it changed."""
        change = extras.change
        if self.wants_records:
            names = tuple((record[0], record[1]) for record in records)
            self._report_run("committed", RecordsCommitted, execution, records=names, change=change)
        if extras.opens and not isinstance(change, Escalate):
            self._report_run("items_opened", ItemsOpened, execution, items=tuple(extras.opens))
        if change is None:
            return
        if isinstance(change, Park):
            self._report_run("parked", RunParked, execution, waits=change.waits, due_ms=change.due_ms)
        elif isinstance(change, Escalate):
            items = tuple((item.id, item.kind) for item in extras.opens)
            self._report_run("escalated", RunEscalation, execution, waits=change.waits, items=items)
        elif isinstance(change, End):
            error = execution.last_error if change.state is State.FAILED else ""
            self._report_run("ended", RunEnded, execution, state=change.state, error=error)

    def recovered(self, run: RunRow, *, taken_ms: int, progress_ms: int, replayed: int) -> None:
        """Report the first durable progress of a run that was taken over."""
        if calls := self._calls.get("recovered"):
            known: dict[str, Any] = {"run": run.id, "agent": run.agent, "epoch": run.epoch}
            known |= {"left_by": run.left_by or "", "deaths": run.deaths, "replayed": replayed}
            self._send(calls, RunRecovered(**known, taken_ms=taken_ms, progress_ms=progress_ms))
