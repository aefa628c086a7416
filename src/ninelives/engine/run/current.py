"""The calling code: the execution that it belongs to, and where in the user's code a step is called.

Finding the call site walks the stack, so it is read only where a message may need it.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Protocol, cast

from ninelives.core.errors import NoRun, UsageError
from ninelives.engine.context import EXECUTION, FRAME, Running, has_runtime
from ninelives.engine.run.branch_task import BranchTask
from ninelives.engine.run.execution import Execution
from ninelives.engine.spec.registry import Step

_OURS = tuple(str(Path(__file__).parents[2] / room) for room in ("core", "engine", "sync.py"))
_ASYNCIO = str(Path(asyncio.__file__).parent)
_NOBODYS = (_ASYNCIO, threading.__file__, str(Path(concurrent.futures.__file__).parent))


class _Owned(Protocol):
    execution: Running


def here() -> Execution | None:
    """Return the execution that this code belongs to, if any."""
    return cast("Execution | None", EXECUTION.get())


def execution_of(owned: _Owned) -> Execution:
    """Return the execution that a position or a lookup belongs to."""
    return cast("Execution", owned.execution)


def current(what: str) -> Execution | None:
    """Return the execution that this code belongs to; None in a process without a runtime.

    Raises NoRun when the process has a runtime and this code has lost its run's context.
    """
    execution = here()
    if execution is None and has_runtime():
        raise NoRun(
            f"{what} was called outside a run, where nothing protects it",
            remedy="Call it from the agent's own tasks (an executor or a callback loses the run: use "
            "asyncio.to_thread), or call .raw(...) if that is what you mean",
        )
    return execution


def require_agent(what: str, remedy: str | None = None) -> Execution:
    """Return the execution that this code belongs to, for a call that only the agent's own code may make.

    Raises NoRun outside of a run; UsageError inside a step.
    """
    execution, frame = require(what), FRAME.get()
    if frame is not None:
        raise UsageError(
            f"{what} is for the agent, not for a step",
            run=execution.run.id,
            step=frame.position.id,
            remedy=remedy,
        )
    return execution


def require(what: str) -> Execution:
    """Return the execution that this code belongs to.

    Raises NoRun outside of a run.
    """
    execution = here()
    if execution is None:
        raise NoRun(f"{what} is for use inside a run", remedy="Call it from an agent or a step of it")
    return execution


def caller() -> str | None:
    """Return file and line of the user's code that waits for us; None for a task that is only a step."""
    task = asyncio.current_task()
    if isinstance(task, BranchTask) and task.thread is not None:
        # Plain `def` code in that thread made the call: it waits for this task, or is about to.
        return _first(sys._current_frames().get(task.thread), (*_OURS, _ASYNCIO))  # noqa: SLF001
    return _first(sys._getframe(1), _OURS)  # noqa: SLF001


def user_line(frame: FrameType | None) -> str | None:
    """Return file and line of the user's code in another thread's stack."""
    return _first(frame, (*_OURS, *_NOBODYS))


def _first(frame: FrameType | None, skipped: tuple[str, ...]) -> str | None:
    """Return the innermost frame that is not ours; None if that is only where a loop or thread begins."""
    while frame is not None and frame.f_code.co_filename.startswith(skipped):
        frame = frame.f_back
    if frame is None or frame.f_code.co_filename.startswith(_NOBODYS):
        return None
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def call_site(step: Step) -> str:
    """Return the call site of a step as text: the line that calls it, else its declaration."""
    return caller() or f"{step.where} (the step; it is called as a task or in a thread)"
