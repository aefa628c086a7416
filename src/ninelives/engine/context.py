"""Where code is: in which run, on which branch of it, inside which step.

Three context variables say it; tasks and threads inherit them. Branches are named when a task is created,
by the task factory: the parent's branch, the coroutine's qualified name, and the how-manieth of that name.
Tasks that a step's body creates are the body's own business and no branches.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Generator
from contextvars import Context, ContextVar, copy_context
from itertools import count
from types import CoroutineType
from typing import TYPE_CHECKING, Any

from ninelives.core.errors import NoRun
from ninelives.core.ids import ID_MARK, aside, parse_step_id, positional_key, step_id
from ninelives.core.journal.fork_origin import Origin
from ninelives.core.journal.replay import Attempt
from ninelives.core.model.run import StepKind
from ninelives.core.values.fingerprint import Fingerprint

if TYPE_CHECKING:
    from ninelives.engine.run.execution import Execution


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

    def __init__(self, execution: Execution, branch: Branch, name: str, given: str | None = None) -> None:
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


EXECUTION: ContextVar[Execution | None] = ContextVar("ninelives_execution", default=None)
BRANCH: ContextVar[Branch] = ContextVar("ninelives_branch")
FRAME: ContextVar[Frame | None] = ContextVar("ninelives_frame", default=None)

_runtimes = 0
_runtimes_lock = threading.Lock()


def runtime_lives(change: int) -> None:
    """Count the runtimes of this process up or down: while one lives, steps need a run."""
    global _runtimes  # noqa: PLW0603
    with _runtimes_lock:
        _runtimes += change


def current(what: str) -> Execution | None:
    """Return the execution that this code is in; None in a process without a runtime.

    Raises NoRun when a runtime lives and the run was lost on the way here.
    """
    execution = EXECUTION.get()
    if execution is None and _runtimes:
        raise NoRun(
            f"{what} was called outside a run, where nothing protects it",
            remedy="Call it from the agent's own tasks (an executor or a callback loses the run: use "
            "asyncio.to_thread), or call .raw(...) if that is what you mean",
        )
    return execution


def require(what: str) -> Execution:
    """Return the execution that this code is in.

    Raises NoRun outside of one.
    """
    execution = EXECUTION.get()
    if execution is None:
        raise NoRun(f"{what} is for use inside a run", remedy="Call it from an agent or a step of it")
    return execution


def run_of(context: Context) -> Execution | None:
    """Return the execution whose own code a context is of; None for a body's, and for nobody's."""
    return context.get(EXECUTION) if context.get(FRAME) is None else None


def is_code_of(execution: Execution, context: Context) -> bool:
    """Tell whether a context is that of a run's own code, not of a body that it started."""
    return context.get(EXECUTION) is execution and context.get(FRAME) is None


def make_task(
    loop: asyncio.AbstractEventLoop,
    coroutine: Coroutine[Any, Any, Any] | Generator[Any, None, Any],
    *,
    context: Context | None = None,
    **options: Any,
) -> asyncio.Task[Any]:
    """Create a task; inside a run, and outside its steps, it is a branch. The event loop's task factory."""
    execution, frame = EXECUTION.get(), FRAME.get()
    if execution is None or frame is not None:
        plain: asyncio.Task[Any] = asyncio.Task(coroutine, loop=loop, context=context, **options)
        if isinstance(frame, WatchedFrame):
            frame.at_work.add(plain)
            plain.add_done_callback(frame.at_work.discard)
        return plain
    name = getattr(coroutine, "__qualname__", type(coroutine).__name__).replace("<locals>.", "")
    branched = context.copy() if context is not None else copy_context()
    branched.run(BRANCH.set, BRANCH.get().child(name))
    if not isinstance(coroutine, CoroutineType):
        task = execution.task_type(coroutine, loop=loop, context=branched, **options)
    else:
        from ninelives.engine.run.eviction import contained

        task = execution.task_type(contained(coroutine), loop=loop, context=branched, **options)
        task.code = coroutine
    execution.adopt(task)
    return task
