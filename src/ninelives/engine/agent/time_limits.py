"""Time limits that are part of the journal: that one fired is an outcome, delivered in order.

`nl.timeout`, and asyncio's own `wait(timeout=)` and `as_completed(timeout=)` over tasks of a run, use them.
That a limit was *not* reached is recorded too, where replay could find it reached: when the run's code came
to rest (a timer or a socket of its own, a sleep) between the last outcome delivered to it and the end of the
limit. On replay the code could rest there for longer, and the deadline has passed by then. This record is
not urgent: it is committed with the next one, or before an effect begins.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from contextvars import Context
from typing import Any

from ninelives.core.clock import moment
from ninelives.core.journal.matching import StepCall
from ninelives.core.journal.replay import TIMEOUT, Recorded, write_body
from ninelives.core.model.run import Kind
from ninelives.core.model.totals import BUILTIN
from ninelives.engine.context import FRAME
from ninelives.engine.run.branch_task import BranchTask
from ninelives.engine.run.current import here
from ninelives.engine.run.execution import Execution
from ninelives.engine.run.waits import deadline_ms, wait_until

_WAITING = frozenset({"_release_waiter", "_on_timeout", "_handle_timeout"})
"""Names of the callbacks that asyncio.wait and asyncio.as_completed pass to `call_later`."""
_FRAMES = 6
"""How many frames above `call_later` we search for the asyncio function that sets the timer."""


async def until(execution: Execution, due_ms: int) -> None:
    """Wait until a moment, parking if needed; records nothing."""
    when = moment(due_ms).isoformat(" ", "seconds")
    await wait_until(execution, due_ms, f"until {when}")


class TimeLimit:
    """A time limit on one branch; calls `reached` when it fires, in the recorded order of outcomes."""

    def __init__(
        self, execution: Execution, task: BranchTask, seconds: float, reached: Callable[[], object]
    ) -> None:
        self.position = execution.next_position(TIMEOUT)
        self.has_fired = False
        self._execution, self._task, self._seconds, self._reached = execution, task, seconds, reached
        self._watch: asyncio.Task[None] | None = None
        self._permit: asyncio.Future[None] | None = None
        self._is_recorded = self._is_over = False

    def begin(self) -> None:
        """Start the limit, or on replay continue as the journal says."""
        execution = self._execution
        execution.limit_begins()
        found = execution.replay.take(self.position.id)
        if found is None:
            if execution.replay.dropped:  # a retry may have dropped that this limit fired
                execution.claims.redo(StepCall(positions=(self.position.id,), names=(TIMEOUT,), f=""))
            watch = self._fire(deadline_ms(self.position, self._seconds))
        else:
            # At once: until its record is claimed for delivery, the next call's body could start before it.
            self._permit = execution.delivery.claim(found)
            self._is_recorded = found.kind is Kind.WITHDRAWN
            again = self._begin_again if self._is_recorded else self._fire_again
            watch = again(found, self._permit)
        # Not a branch: its outcome competes with those of branches (`limit_begins`).
        self._watch = asyncio.Task(watch, loop=execution.loop)
        # As if an outcome was just delivered: unless the code rests after this, replay cannot fire the limit.
        self._task.delivered_at = execution.delivery.rests

    def end(self) -> None:
        """Stop the limit: the limited code has ended. Where replay needs it, record that it did not fire."""
        execution = self._execution
        if self._is_over:
            return
        self._is_over = True
        execution.limit_ends()
        if self._watch is not None and not self._watch.done():
            self._watch.cancel()
            if self._permit is not None:
                self._permit.cancel()  # else it stays, if the watch has not begun to wait for it
        if self.has_fired or self._is_recorded or self._task.delivered_at == execution.delivery.rests:
            return
        # CRASH: not recorded, and nothing that depends on it either.
        execution.defer((Kind.WITHDRAWN, self.position.id, write_body(None), (), BUILTIN))

    async def _fire_again(self, found: Recorded, permit: asyncio.Future[None]) -> None:
        await self._execution.delivery.recorded(found, permit)
        self._fall_due()

    async def _begin_again(self, found: Recorded, permit: asyncio.Future[None]) -> None:
        """Restart a limit that was recorded as not reached, for code that is still in the block.

        The code was changed, or waits for something else; an earlier process had left the block in time.
        """
        await self._execution.delivery.recorded(found, permit)
        self._is_recorded = False
        await self._fire(self._execution.store.now_ms() + int(self._seconds * 1000))

    async def _fire(self, due_ms: int) -> None:
        execution = self._execution
        await until(execution, due_ms)
        if execution.sealed is not None:
            return
        fired = (Kind.RESULT, self.position.id, write_body(None, value=b"true"), (), BUILTIN)
        # Recorded and delivered in order: that it came before or after another outcome is the same on replay.
        await execution.delivery.settle(execution.durable(execution.write([fired])), is_own=False)
        self._fall_due()

    def _fall_due(self) -> None:
        self.has_fired = True
        self._reached()


# ---------------------------------------------------------------------------------- asyncio's own waits


class _Timer:
    """Replaces the event loop's TimerHandle for asyncio's waits: only `cancel` is needed."""

    def __init__(self, limit: TimeLimit) -> None:
        self._limit = limit

    def cancel(self) -> None:
        """Stop the limit."""
        self._limit.end()


def call_later(
    original: Callable[..., Any],
    delay: float,
    callback: Callable[..., object],
    *args: Any,
    context: Context | None = None,
) -> Any:
    """Replace the event loop's `call_later`; record the time limit of a wait over tasks of a run."""
    if getattr(callback, "__name__", None) in _WAITING:
        limited = _limited(delay, lambda: callback(*args))
        if limited is not None:
            return limited
    return original(delay, callback, *args, context=context)


def _limited(seconds: float, reached: Callable[[], object]) -> _Timer | None:
    """Return a recorded limit for the wait being set up, if it waits for branches of a run."""
    execution, task = here(), asyncio.current_task()
    if execution is None or FRAME.get() is not None or not isinstance(task, BranchTask):
        return None
    if execution.sealed is not None or not any(isinstance(one, BranchTask) for one in _waited_for()):
        return None
    limit = TimeLimit(execution, task, max(0.0, seconds), reached)
    limit.begin()
    return _Timer(limit)


def _waited_for() -> list[Any]:
    """Return the tasks that asyncio.wait or asyncio.as_completed is about to wait for."""
    frame: Any = sys._getframe(2)  # noqa: SLF001
    for _ in range(_FRAMES):
        frame = frame.f_back
        if frame is None:
            return []
        code = frame.f_code
        if code.co_filename == asyncio.tasks.__file__:
            if code.co_name == "_wait":
                return list(frame.f_locals["fs"])
            if code.co_name == "as_completed":
                return list(frame.f_locals.get("todo", ()))
            if code.co_name == "__init__":  # the iterator that as_completed returns since Python 3.13
                return list(frame.f_locals.get("todo", ()))
            return []
    return []
