"""The execution that the calling code belongs to, read from its context."""

from __future__ import annotations

from typing import Protocol, cast

from ninelives.core.errors import NoRun, UsageError
from ninelives.engine.context import EXECUTION, FRAME, Running, has_runtime
from ninelives.engine.run.execution import Execution


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
            step=frame.place.id,
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
