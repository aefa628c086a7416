"""Which run, branch and step the current code belongs to.

Three context variables hold it; tasks and threads inherit them. The task factory names a branch when it
creates the task: the parent's branch, the coroutine's qualified name, and a counter of tasks with that name.
Tasks that a step's body creates belong to the body and are not branches.
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
from ninelives.core.ids import ID_MARK, aside, parse_step_id, positional_key
from ninelives.core.journal.fork_origin import Origin
from ninelives.core.journal.matching import RecordClaims
from ninelives.core.journal.replay import Attempt, Replay
from ninelives.core.model.commit import Verdict
from ninelives.core.model.run import Kind, RunRow, StepKind
from ninelives.core.model.totals import Facts
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

    @property
    def claims(self) -> RecordClaims:
        """The run's unclaimed records."""

    @property
    def has_one_branch(self) -> bool:
        """Whether the run has a single branch."""

    def note(self, kind: Kind, step: str, body: bytes, facts: Facts = ..., /) -> None:
        """Write a record that no code waits for."""

    def write(self, drafts: Sequence[Draft], /) -> asyncio.Future[Verdict]:
        """Hand records to the committer."""

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
            return Branch(f"{self.name}/{name}")
        while (numbered := f"{name}.{number}") in self.children:  # a coroutine has that very name
            number += 1
        self.children[numbered] = 1
        return Branch(f"{self.name}/{numbered}")


class StepPosition:
    """The position of one step in a run: its id in the journal, and its key."""

    __slots__ = ("branch", "execution", "id", "name", "number")

    def __init__(self, execution: Running, branch: Branch, name: str, given: str | None = None) -> None:
        self.execution, self.name = execution, name
        if given is None:
            self.branch = branch.name
            self.number, self.id = branch.next_call(name)
        else:
            self.branch, self.number = ID_MARK + given, 0
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
    process last checked that it held its lease before the body began.
    """

    __slots__ = (
        "admitted_ms",
        "at",
        "attempt",
        "cancels",
        "failures",
        "fingerprint",
        "is_over",
        "kind",
        "position",
    )

    def __init__(
        self, position: StepPosition, fingerprint: Fingerprint, kind: StepKind = StepKind.ACTION
    ) -> None:
        self.position, self.fingerprint, self.kind = position, fingerprint, kind
        self.failures: tuple[Attempt, ...] = ()
        self.at = 0.0
        self.admitted_ms = 0
        self.attempt = 1
        self.cancels = 0
        self.is_over = False


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
