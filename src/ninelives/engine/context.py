"""Where code is: in which run, on which branch of it, inside which step.

Three context variables say it; tasks and threads inherit them. Branches are named when a task is created,
by the task factory: the parent's branch, the coroutine's qualified name, and the how-manieth of that name.
Tasks that a step's body creates are the body's own business and no branches.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from contextvars import Context, ContextVar
from itertools import count
from typing import Protocol

from ninelives.core.clock import Clock
from ninelives.core.errors import NineLivesError
from ninelives.core.ids import ID_MARK, aside, parse_step_id, positional_key, step_id
from ninelives.core.journal.fork_origin import Origin
from ninelives.core.journal.matching import RecordClaims
from ninelives.core.journal.replay import Attempt, Replay
from ninelives.core.model.commit import Verdict
from ninelives.core.model.run import Kind, RunRow, StepKind
from ninelives.core.model.totals import Facts
from ninelives.core.values.fingerprint import Fingerprint
from ninelives.engine.commit.ticket import Draft


class Running(Protocol):
    """What is needed of a run that is executed here by the modules that its execution is made of.

    `engine.run.execution.Execution` is the only implementation; see there.
    """

    run: RunRow
    turn: int
    clock: Clock
    loop: asyncio.AbstractEventLoop
    replay: Replay
    claims: RecordClaims | None
    reads: int
    timers: int
    sealed: NineLivesError | None

    @property
    def has_one_branch(self) -> bool:
        """Return whether there is one branch only."""

    def note(self, kind: Kind, step: str, body: bytes, facts: Facts = ..., /) -> None:
        """Record something that no code waits for."""

    def write(self, drafts: Sequence[Draft], /) -> asyncio.Future[Verdict]:
        """Hand records to the committer."""

    def seal(self, why: NineLivesError, /) -> None:
        """Refuse every further call and record."""


class Branch:
    """One line of execution in a run; counts the calls of each name on it."""

    __slots__ = ("calls", "children", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.calls: dict[str, int] = {}
        self.children: dict[str, int] | None = None

    def next_call(self, name: str) -> int:
        """Return which call of that name this is, from 0."""
        number = self.calls.get(name, 0)
        self.calls[name] = number + 1
        return number

    def child(self, name: str) -> Branch:
        """Return the branch of a task that is created here."""
        if self.children is None:
            self.children = {}
        number = self.children.get(name, 0)
        self.children[name] = number + 1
        if not number:
            return Branch(f"{self.name}/{name}")
        while (numbered := f"{name}.{number}") in self.children:  # another was named so
            number += 1
        self.children[numbered] = 1
        return Branch(f"{self.name}/{numbered}")


class StepPosition:
    """Where one step of a run is: what names it in the journal, and its key."""

    __slots__ = ("branch", "execution", "id", "name", "number")

    def __init__(self, execution: Running, branch: Branch, name: str, given: str | None = None) -> None:
        self.execution, self.name = execution, name
        if given is None:
            self.branch, self.number = branch.name, branch.next_call(name)
        else:
            self.branch, self.number = ID_MARK + given, 0
        self.id = step_id(self.branch, name, self.number)

    def id_under(self, name: str) -> str:
        """Return the id that the step would have under another name."""
        return step_id(self.branch, name, self.number)

    def adopt(self, step: str) -> None:
        """Be the step that was recorded under this id: its key and all that is written go on under it."""
        self.branch, self.name, self.number = parse_step_id(step)
        self.id = step

    def move_aside(self, taken: set[str]) -> None:
        """Take an id beside one's own that nothing is recorded under: the same in the next life."""
        own = self.branch
        for number in count(1):
            if self.id not in taken:
                return
            self.branch = aside(own, number)
            self.id = step_id(self.branch, self.name, self.number)

    def key(self) -> str:
        """Return the idempotency key: the same on every attempt, in every life."""
        run = self.execution.run
        return positional_key(run.id, self.execution.turn, self.branch, self.name, self.number)

    def key_in(self, origin: Origin) -> str:
        """Return the key that the same place had in the run that this one was forked from."""
        return positional_key(origin.run, origin.turn, self.branch, self.name, self.number)


class Frame:
    """A body that is being executed: where, with which arguments, since when, at which attempt.

    `cancels`: how often its task had been asked to leave before it began. `failures` are the attempts so far.
    `admitted_ms`: when its process was last found to hold its lease before it began, by the boot clock.
    """

    __slots__ = ("admitted_ms", "asked", "at", "attempt", "cancels", "failures", "is_over", "kind", "place")

    def __init__(self, place: StepPosition, asked: Fingerprint, kind: StepKind = StepKind.ACTION) -> None:
        self.place, self.asked, self.kind = place, asked, kind
        self.failures: tuple[Attempt, ...] = ()
        self.at = 0.0
        self.admitted_ms = 0
        self.attempt = 1
        self.cancels = 0
        self.is_over = False


class WatchedFrame(Frame):
    """A body of which it matters when all that it began is over: tasks and threads beside its own.

    `is_cut`: it was told to leave before it had ended by itself.
    """

    __slots__ = ("at_work", "began_ms", "is_cut")

    def __init__(self, place: StepPosition, asked: Fingerprint, kind: StepKind, began_ms: int) -> None:
        super().__init__(place, asked, kind)
        self.at_work: set[object] = set()
        self.began_ms, self.is_cut = began_ms, False


EXECUTION: ContextVar[Running | None] = ContextVar("ninelives_execution", default=None)
BRANCH: ContextVar[Branch] = ContextVar("ninelives_branch")
FRAME: ContextVar[Frame | None] = ContextVar("ninelives_frame", default=None)

_runtimes = 0
_runtimes_lock = threading.Lock()


def runtime_lives(change: int) -> None:
    """Count the runtimes of this process up or down: while one lives, steps need a run."""
    global _runtimes  # noqa: PLW0603
    with _runtimes_lock:
        _runtimes += change


def has_runtime() -> bool:
    """Return whether a runtime lives in this process."""
    return _runtimes > 0


def run_of(context: Context) -> Running | None:
    """Return the execution whose own code a context is of; None for a body's, and for nobody's."""
    return context.get(EXECUTION) if context.get(FRAME) is None else None


def is_code_of(execution: Running, context: Context) -> bool:
    """Tell whether a context is that of a run's own code, not of a body that it started."""
    return context.get(EXECUTION) is execution and context.get(FRAME) is None
