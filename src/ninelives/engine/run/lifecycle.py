"""The branches of an execution, what it may still do, and how it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context
from enum import Flag, auto
from typing import Any

from ninelives.core.errors import NineLivesError, RunCancelled, TimedOut
from ninelives.core.model.run import RunRow
from ninelives.engine.run.branch_task import BranchTask, current_branch
from ninelives.engine.run.delivery import Delivery

STOP_SECONDS = 5.0
"""How long the code of a cancelled run may take to clean up."""
PATIENCE = 100
"""How often code that ignores its cancellation is cancelled again; after that it waits without end."""


class Phase(Flag):
    """What an execution may still do. Several of these may hold at once; OPEN is none of them."""

    OPEN = 0
    PAUSED = auto()
    """Nothing begins until the run is resumed."""
    STOPPED = auto()
    """Cancelled or out of time: the run's code is cancelled at each call."""
    LANDING = auto()
    """The agent's code has ended; only non-resumable actions that have started continue."""
    LEAVING = auto()
    """The run's tasks are cancelled, and abandoned if they do not end."""
    SEALED = auto()
    """Nothing begins and nothing is recorded."""


OPEN = Phase.OPEN


class Lifecycle:
    """The part of an `Execution` that knows its tasks and its phase."""

    phase = OPEN
    sealed: NineLivesError | None = None
    """Why the execution is sealed."""
    stopped: RunCancelled | TimedOut | None = None
    """Why the run's code is being ended."""
    deadline_ms: int | None = None
    is_undoing = False
    """Whether the agent's code is over and its compensations run."""
    delivery: Delivery
    main: asyncio.Task[Any] | None = None
    _when_sealed: asyncio.Future[None] | None = None
    _when_over: asyncio.Future[None] | None = None
    _refusals = 0
    _alarm: asyncio.TimerHandle | None = None

    def __init__(self, run: RunRow, loop: asyncio.AbstractEventLoop) -> None:
        self.run, self.loop = run, loop
        self._tasks: dict[asyncio.Task[Any], None] = {}  # ordered: cancellation is deterministic, too

    def adopt(self, task: asyncio.Task[Any]) -> None:
        """Count a task as a branch of this run until it is done."""
        self._tasks[task] = None
        task.add_done_callback(self._leave)

    def _leave(self, task: asyncio.Task[Any]) -> None:
        self._tasks.pop(task, None)
        if task is self.main:
            ring(self._when_over)
        if isinstance(task, BranchTask) and task.code is not None:
            # Cancelled before it began, it would raise the warning "coroutine was never awaited".
            task.code.close()
        # One branch less: those that are left may all wait now, and the run may park.
        if self.delivery.at_rest:
            self.delivery.check_soon()

    def open_branches(self) -> list[asyncio.Task[Any]]:
        """Return the tasks that are not done."""
        return [task for task in self._tasks if not task.done()]

    @property
    def has_ended(self) -> bool:
        """Whether the agent's code has ended; what other branches wait for no longer matters."""
        return self.main is not None and self.main.done()

    @property
    def has_bodies(self) -> bool:
        """Whether a body runs."""
        return any(isinstance(task, BranchTask) and task.body_of is not None for task in self._tasks)

    @property
    def has_started_actions(self) -> bool:
        """Whether a non-resumable action has started and has no outcome."""
        return any(isinstance(task, BranchTask) and task.is_acting for task in self._tasks)

    def seal(self, why: NineLivesError) -> None:
        """Refuse every further call and record; the executor cleans up."""
        if self.sealed is None:
            self.sealed = why
            self.phase |= Phase.SEALED
            ring(self._when_sealed)
            ring(self._when_over)

    def stop(self, why: RunCancelled | TimedOut) -> None:
        """End the run's code: cancel it now and at each further call, then abandon it (STOP_SECONDS).

        A non-resumable action that is under way keeps its own time limit.
        """
        if self.stopped is None and self.sealed is None:
            self.stopped = why
            self.phase |= Phase.STOPPED
            # Only the agent's task: the branches that it awaits
            # are cancelled through it, others by `tasks.clear`.
            if self.main is not None:
                self.main.cancel()
            self._set_alarm(STOP_SECONDS, lambda: self._give_out(why))

    def land(self) -> None:
        """Let only non-resumable actions continue that have started: the agent's code has ended."""
        self.phase |= Phase.LANDING

    def abandon(self) -> None:
        """Cancel the run's code at each further call: its tasks are cancelled, or were left behind."""
        self.phase |= Phase.LEAVING

    def undo(self) -> None:
        """Note that the agent's code is over and only its compensations run."""
        self.is_undoing = True

    def _give_out(self, why: RunCancelled | TimedOut) -> None:
        # To seal now would turn an action that is about to end into a doubt.
        if self.has_started_actions and self.has_bodies:
            self._set_alarm(STOP_SECONDS, lambda: self._give_out(why))
        else:
            self.seal(why)

    def limit(self, seconds: float, now_ms: Callable[[], int]) -> None:
        """End the run when it takes longer than this, counted from its creation, across all executions.

        `now_ms` is the store's clock.
        """
        self.deadline_ms = self.run.created_ms + int(seconds * 1000)
        left = (self.deadline_ms - now_ms()) / 1000
        if left > 0:
            # The store's clock may be set meanwhile, so no timer runs longer than a minute.
            self._set_alarm(min(left, 60.0), lambda: self.limit(seconds, now_ms))
        elif not self.has_ended:
            self.stop(TimedOut(f"the run did not end within {seconds:g} s", run=self.run.id))

    def _set_alarm(self, seconds: float, work: Callable[[], None]) -> None:
        # One timer at a time: once the run is stopped, its deadline no longer matters.
        self.leave()
        # In no run's context: it must not count as a timer of the run's code.
        self._alarm = self.loop.call_later(seconds, work, context=Context())

    def leave(self) -> None:
        """Cancel the pending timer (deadline, or end of the clean-up time)."""
        if self._alarm is not None:
            self._alarm.cancel()

    def when_sealed(self) -> asyncio.Future[None]:
        """Return a future that is done once the execution is sealed."""
        if self._when_sealed is None:
            self._when_sealed = self.loop.create_future()
            if self.sealed is not None:
                self._when_sealed.set_result(None)
        return self._when_sealed

    async def over(self, main: asyncio.Task[Any]) -> None:
        """Wait until the agent's task is done or the execution is sealed. Call once, before either."""
        self.main, self._when_over = main, self.loop.create_future()
        # The request came before there was a task to cancel.
        if self.stopped is not None:
            main.cancel()
        await self._when_over

    async def require_open(self) -> None:
        """Return, unless the execution is sealed: then wait until cancelled."""
        if self.sealed is not None:
            await self.forever()

    @property
    def is_acting(self) -> bool:
        """Whether a non-resumable action has started on the current branch and has no outcome."""
        branch = current_branch(self.loop)
        return branch is not None and branch.is_acting

    async def forever(self) -> None:
        """Wait without end; only cancellation ends it."""
        # The run's tasks are being cancelled: code that swallowed that must not hang here.
        if Phase.LEAVING in self.phase:
            await self.refuse()
        await self.loop.create_future()

    async def refuse(self) -> None:
        """Raise CancelledError; after PATIENCE times wait without end, as the code ignores it."""
        self._refusals += 1
        if self._refusals > PATIENCE:
            await self.loop.create_future()
        # Code that swallows the cancellation in a loop must not block the event loop.
        await asyncio.sleep(0)
        raise asyncio.CancelledError


def ring(waiting: asyncio.Future[None] | None) -> None:
    """End a wait, if there is one and it has not ended."""
    if waiting is not None and not waiting.done():
        waiting.set_result(None)
