"""A task of a run's agent code: which body it runs, which action it calls, and what cancelled it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine
from typing import Any, Protocol

from ninelives.engine.context import FRAME
from ninelives.engine.run.delivery import Delivery
from ninelives.engine.run.quiescence import timer_of


class _Executing(Protocol):
    @property
    def delivery(self) -> Delivery: ...


class StartedCall(Protocol):
    """A call of a protected action (`protected_call.ProtectedCall`)."""

    @property
    def is_under_way(self) -> bool:
        """Whether it has started and has no outcome."""


class BranchTask(asyncio.Task[Any]):
    """A task of a run's agent code. Notes whether a timer that replay cannot repeat cancelled it."""

    foreign_timer: str | None = None
    body_of: _Executing | None = None
    code: Coroutine[Any, Any, Any] | None = None
    thread: int | None = None
    """The thread that waits for this task, if plain `def` code made the call."""
    protected_call: StartedCall | None = None
    """The protected action that this task calls, if any."""
    delivered_at = -1
    """The value of `Delivery.rests` when an outcome was last delivered to this branch."""

    @property
    def is_acting(self) -> bool:
        """Whether a non-resumable action has started on this task and has no outcome."""
        return self.protected_call is not None and self.protected_call.is_under_way

    def cancel(self, msg: Any | None = None) -> bool:
        """Cancel; note the timer if agent code used one that replay cannot repeat. Bodies may use any."""
        if FRAME.get() is None:
            self.foreign_timer = timer_of(sys._getframe(1)) or self.foreign_timer  # noqa: SLF001
        if self.body_of is not None:
            # The run is not quiescent until the body has ended and its code has seen the cancellation.
            self.body_of.delivery.running.add(self)
        return super().cancel(msg)


def current_branch(loop: asyncio.AbstractEventLoop) -> BranchTask | None:
    """Return the branch whose code runs now; None in a task that is no branch."""
    task = asyncio.current_task(loop)
    return task if isinstance(task, BranchTask) else None


def enter_body(branch: BranchTask | None, execution: _Executing) -> None:
    """Note that a branch runs a body: the run stays in memory meanwhile."""
    if branch is not None:
        branch.body_of = execution


def leave_body(branch: BranchTask | None) -> None:
    """Note that a branch's body has ended; if it was cancelled, only now can the run be quiescent."""
    if branch is not None:
        execution, branch.body_of = branch.body_of, None
        if execution is not None and branch in execution.delivery.running:
            execution.delivery.running.discard(branch)
            execution.delivery.check_soon()
