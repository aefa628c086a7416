"""Durable sleeps and time limits: the deadline is recorded, so it survives crashes and parking.

Times too short to park for are not recorded and start again after a crash (see `run.waits.deadline_ms`).
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

from ninelives.core.errors import NoRun, TimedOut, UsageError
from ninelives.engine.agent.time_limits import TimeLimit, until
from ninelives.engine.context import FRAME
from ninelives.engine.run.branch_task import BranchTask
from ninelives.engine.run.current import current, here
from ninelives.engine.run.execution import Execution
from ninelives.engine.run.waits import check_seconds, deadline_ms
from ninelives.engine.step.envelope import Builtin
from ninelives.engine.step.other_loops import at_home


@at_home
async def sleep(seconds: float) -> None:
    """Sleep durably: the run may park meanwhile, and wakes on time even if every process died.

    Inside a step, and without a runtime, it is an ordinary `asyncio.sleep`.
    Raises UsageError when `seconds` is not a valid time.
    """
    check_seconds(seconds, "nl.sleep()")
    execution = current("nl.sleep()")
    if execution is None or FRAME.get() is not None:
        await asyncio.sleep(seconds)
        return
    async with Builtin(execution, "sleep", shown={"seconds": f"{seconds:.15g}"}) as step:
        if await step.recorded() is None:
            await _sleep(execution, step, deadline_ms(step.position, seconds, step.shown))


@at_home
async def sleep_until(when: datetime) -> None:
    """Sleep durably until a moment; a moment in the past costs a record and no time.

    Raises UsageError when the moment has no time zone.
    """
    if getattr(when, "tzinfo", None) is None or when.utcoffset() is None:
        raise UsageError(
            f"nl.sleep_until({when!r}): not a moment", remedy="Give a datetime with a time zone: nl.now() + …"
        )
    execution, due_ms = current("nl.sleep_until()"), math.ceil(when.timestamp() * 1000)
    if execution is None or FRAME.get() is not None:
        await asyncio.sleep(max(0.0, (when - datetime.now(UTC)).total_seconds()))
        return
    async with Builtin(execution, "sleep_until", shown={"when": f'"{when.isoformat()}"'}) as step:
        if await step.recorded() is None:
            await _sleep(execution, step, due_ms)


async def _sleep(execution: Execution, step: Builtin, due_ms: int) -> None:
    await until(execution, due_ms)
    # CRASH: awake and not recorded; the next worker sees that the time has passed.
    await step.returns(b"null")


@asynccontextmanager
async def timeout(seconds: float) -> AsyncIterator[None]:
    """Limit the time of the block: `async with nl.timeout(30): ...`.

    Whether the block or the limit came first is recorded, and is the same on replay.
    Raises TimedOut; UsageError when `seconds` is not a valid time.
    """
    check_seconds(seconds, "nl.timeout()")
    execution, task = here(), asyncio.current_task()
    if execution is None or FRAME.get() is not None:
        try:
            async with asyncio.timeout(seconds):
                yield
        except TimeoutError as error:
            raise TimedOut(f"not done within {seconds:g} s") from error
        return
    if not isinstance(task, BranchTask):
        raise NoRun("nl.timeout() is for the agent's own tasks")
    before = task.cancelling()
    limit = TimeLimit(execution, task, seconds, task.cancel)
    limit.begin()
    try:
        yield
    except asyncio.CancelledError:
        # Else the run's code was cancelled as well: that must not be turned into a TimedOut.
        if limit.has_fired and task.uncancel() <= before:
            raise TimedOut(
                f"not done within {seconds:g} s", run=execution.run.id, step=limit.position.id
            ) from None
        raise
    finally:
        limit.end()
