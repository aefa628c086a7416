"""Which run, branch and step the current code belongs to.

Three context variables hold it; tasks and threads inherit them. The task factory names a branch when it
creates the task: the parent's branch, the coroutine's qualified name, and a counter of tasks with that name.
Tasks that a step's body creates belong to the body and are not branches.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from contextvars import Context, ContextVar
from itertools import count
from typing import Any, Protocol

from ninelives.core.clock import Clock
from ninelives.core.errors import NineLivesError
from ninelives.core.governance.judged import Judged
from ninelives.core.governance.taint import NO_CHANGE, TaintChange
from ninelives.core.ids import ID_MARK, aside, parse_step_id, positional_key
from ninelives.core.journal.fork_origin import Origin
from ninelives.core.journal.matching import RecordClaims
from ninelives.core.journal.replay import Attempt, Replay
from ninelives.core.model.commit import Verdict
from ninelives.core.model.counter import StepCounts
from ninelives.core.model.run import Kind, RunRow, StepKind
from ninelives.core.model.totals import Facts
from ninelives.core.model_calls.answered import Answered
from ninelives.core.model_calls.cached_answer import CacheQuestion
from ninelives.core.step_ids import write_step_id
from ninelives.core.values.fingerprint import Fingerprint
from ninelives.engine.commit.ticket import Draft


class Running(Protocol):
    """The part of a run's execution that lower modules use.

    `engine.run.execution.Execution` is the only implementation. The protocol exists so that those modules
    need not import it.
    """

    run: RunRow
    turn: int
    clock: Clock
    loop: asyncio.AbstractEventLoop
    replay: Replay
    limits: int
    sealed: NineLivesError | None
    done: StepCounts

    @property
    def claims(self) -> RecordClaims:
        """The run's unclaimed records."""

    @property
    def has_one_branch(self) -> bool:
        """Whether the run has a single branch."""

    @property
    def taint(self) -> frozenset[str]:
        """Where the data came from that the run has read so far, and that it was started with."""

    @property
    def last_error(self) -> str:
        """The last error that the journal records, as text; empty if there is none."""

    def note(self, kind: Kind, step: str, body: bytes, facts: Facts = ..., /) -> None:
        """Write a record that no code waits for."""

    def write(self, drafts: Sequence[Draft], /) -> asyncio.Future[Verdict]:
        """Hand records to the committer."""

    @property
    def has_lease(self) -> bool:
        """Whether a body may begin now."""

    async def require_lease(self) -> None:
        """Return once bodies may begin again. Never returns if the lease is lost."""

    def retract(self, step: str, /) -> None:
        """Retract what a step has emitted so far."""

    def seal(self, why: NineLivesError, /) -> None:
        """Refuse every further call and record."""


class Branch:
    """One sequential flow of a run's code; counts its calls of each step name."""

    __slots__ = ("_calls", "children", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self._calls: dict[str, tuple[int, str]] = {}
        self.children: dict[str, int] | None = None

    def next_call(self, name: str) -> tuple[int, str]:
        """Count a call of that name; return its number, from 0, and the step's id."""
        known = self._calls.get(name)
        if known is None:
            # Cached without its number: later calls of the same step only append one (the hot path).
            known = 0, write_step_id(self.name, name, 0)[:-1]
        number, prefix = known
        self._calls[name] = number + 1, prefix
        return number, f"{prefix}{number}"

    def child(self, name: str) -> Branch:
        """Return the branch of a task that this branch creates."""
        if self.children is None:
            self.children = {}
        number = self.children.get(name, 0)
        self.children[name] = number + 1
        if not number:
            # The first task has no number: a second one, added to the code later, does not rename it.
            return Branch(f"{self.name}/{name}")
        while (numbered := f"{name}.{number}") in self.children:  # a coroutine has that very name
            number += 1
        self.children[numbered] = 1
        return Branch(f"{self.name}/{numbered}")


class StepPosition:
    """The position of one step in a run: its id in the journal, and its key."""

    __slots__ = ("branch", "execution", "id", "name", "number")

    def __init__(self, execution: Running, branch: Branch, name: str, explicit_id: str | None = None) -> None:
        self.execution, self.name = execution, name
        if explicit_id is None:
            self.branch = branch.name
            self.number, self.id = branch.next_call(name)
        else:
            # Not on the caller's branch: the call is found by its id, wherever in the code it is made.
            self.branch, self.number = ID_MARK + explicit_id, 0
            self.id = write_step_id(self.branch, name, 0)

    def id_under(self, name: str) -> str:
        """Return the id that this position has under another step name."""
        return write_step_id(self.branch, name, self.number)

    def adopt(self, step: str) -> None:
        """Take over a recorded id: the key and all further records of the step use it."""
        self.branch, self.name, self.number = parse_step_id(step)
        self.id = step

    def move_aside(self, taken: set[str]) -> None:
        """Take a neighbouring id that has no record yet; every replay computes the same one."""
        own = self.branch
        # Another branch, not the next number of this one: that number belongs to the code's next call.
        for number in count(1):
            if self.id not in taken:
                return
            self.branch = aside(own, number)
            self.id = write_step_id(self.branch, self.name, self.number)

    def key(self) -> str:
        """Return the idempotency key: the same on every attempt and on every replay."""
        run = self.execution.run
        return positional_key(run.id, self.execution.turn, self.branch, self.name, self.number)

    def key_in(self, origin: Origin) -> str:
        """Return the key of the same position in the run that this one was forked from."""
        return positional_key(origin.run, origin.turn, self.branch, self.name, self.number)


class Frame:
    """A body that is being executed: its position, arguments, start time and attempt.

    `fingerprint` is that of the arguments. `cancels`: how many cancellations of its task were pending
    before it began. `failures`: the failed attempts so far. `admitted_ms`: when, by the boot clock, the
    process last checked that it held its lease before the body began. `judged`: how a policy judged the call,
    if one did. `charged`: what the body has charged, by meter. `taint`: where the data that it reads comes
    from. `answered`: how a model call was answered; `question` is what a cache knows it by, and `data` the
    value as it was recorded. `counted`: how many of its requests have been reported to what governs.
    """

    __slots__ = (
        "admitted_ms",
        "answered",
        "at",
        "attempt",
        "cancels",
        "charged",
        "counted",
        "data",
        "failures",
        "fingerprint",
        "is_over",
        "judged",
        "kind",
        "position",
        "question",
        "taint",
    )

    def __init__(
        self, position: StepPosition, fingerprint: Fingerprint, kind: StepKind = StepKind.ACTION
    ) -> None:
        self.position, self.fingerprint, self.kind = position, fingerprint, kind
        self.failures: tuple[Attempt, ...] = ()
        self.at = 0.0
        self.admitted_ms = 0
        self.attempt = 1
        self.cancels = self.counted = 0
        self.is_over = False
        self.judged: Judged | None = None
        self.taint: TaintChange | None = None
        self.charged: dict[str, int] | None = None
        self.answered: Answered | None = None
        self.question: CacheQuestion | None = None
        self.data: bytes | None = None

    def reads(self, taint: TaintChange) -> None:
        """Note that the body has called a step that reads data of this origin."""
        self.taint = (self.taint or NO_CHANGE).with_labels(taint.adds)

    def charge(self, meter: str, amount: int) -> None:
        """Add to what this body has spent of a meter. May be called on any thread."""
        with _charging:
            if self.charged is None:
                self.charged = {}
            self.charged[meter] = self.charged.get(meter, 0) + amount


class WayFrame(Frame):
    """One request of a body that asks several ways: the same position and key, and an output of its own.

    `of` is the body's own frame. `may_emit` is asked before each item: items of one request only count.
    """

    __slots__ = ("may_emit", "of")

    def __init__(self, of: Frame, may_emit: Callable[[], bool]) -> None:
        super().__init__(of.position, of.fingerprint, of.kind)
        self.of, self.may_emit = of, may_emit
        self.at, self.admitted_ms, self.attempt, self.cancels = of.at, of.admitted_ms, of.attempt, of.cancels

    def reads(self, taint: TaintChange) -> None:
        """Note the origin of data that a called step reads, for the whole body."""
        self.of.reads(taint)

    def charge(self, meter: str, amount: int) -> None:
        """Add to what the whole body has spent: a request that is cancelled may be billed all the same."""
        self.of.charge(meter, amount)


class WatchedFrame(Frame):
    """A body whose tasks and threads are tracked, because it matters when all of them are over.

    `at_work`: the tasks and threads that it started and that have not ended. `is_cut`: we cancelled it at
    its time limit, before it ended by itself. See docs/decisions/0017.
    """

    __slots__ = ("at_work", "began_ms", "is_cut")

    def __init__(
        self, position: StepPosition, fingerprint: Fingerprint, kind: StepKind, began_ms: int
    ) -> None:
        super().__init__(position, fingerprint, kind)
        self.at_work: set[object] = set()
        self.began_ms, self.is_cut = began_ms, False


EXECUTION: ContextVar[Running | None] = ContextVar("ninelives_execution", default=None)
BRANCH: ContextVar[Branch] = ContextVar("ninelives_branch")
FRAME: ContextVar[Frame | None] = ContextVar("ninelives_frame", default=None)

_charging = threading.Lock()
_runtimes = 0
_runtimes_lock = threading.Lock()


def runtime_lives(change: int) -> None:
    """Count the runtimes of this process up or down: while there is one, steps need a run."""
    global _runtimes  # noqa: PLW0603
    with _runtimes_lock:
        _runtimes += change


def has_runtime() -> bool:
    """Return whether this process has a runtime."""
    return _runtimes > 0


def run_of(context: Context) -> Running | None:
    """Return the execution whose agent code has this context; None inside a body or outside any run."""
    return context.get(EXECUTION) if context.get(FRAME) is None else None


def is_code_of(execution: Running, context: Context) -> bool:
    """Return whether a context belongs to a run's agent code, not to a body that it started."""
    return context.get(EXECUTION) is execution and context.get(FRAME) is None


# What events say -----------------------------------------------------------------------------------


def of_row(run: RunRow) -> dict[str, Any]:
    """Return what each event says of a run."""
    known = {"run": run.id, "agent": run.agent, "session": run.session or ""}
    return {**known, "epoch": run.epoch, "turn": run.turn}


def of_run(execution: Running) -> dict[str, Any]:
    """Return what each event says of a run that is executed here."""
    return {**of_row(execution.run), "turn": execution.turn}


def of_frame(frame: Frame) -> dict[str, Any]:
    """Return what each event says of a step."""
    position = frame.position
    return {
        **of_run(position.execution),
        "step": position.id,
        "name": position.name,
        "kind": frame.kind,
        "attempt": frame.attempt,
        "at_ms": position.execution.clock.now_ms(),
    }
