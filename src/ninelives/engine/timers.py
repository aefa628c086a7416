"""Sleeping, durably: the moment of waking is recorded, so a run that died or parked wakes when it was to."""

from __future__ import annotations

import asyncio
import math
from datetime import UTC, datetime

from ninelives.core.errors import UsageError
from ninelives.core.model import Kind, News
from ninelives.core.replay import write_body
from ninelives.engine.context import FRAME, current
from ninelives.engine.execution import Execution
from ninelives.engine.waiting import Builtin, wait

LONGEST_SECONDS = 100 * 366 * 86_400.0


async def sleep(seconds: float) -> None:
    """Sleep; the run may leave memory meanwhile, and wakes at the time even if every process died.

    Raises UsageError for what is no time.
    """
    check_seconds(seconds, "nl.sleep()")
    execution = current("nl.sleep()")
    if execution is None or FRAME.get() is not None:
        await asyncio.sleep(seconds)
        return
    async with Builtin(execution, "sleep") as step:
        if await step.recorded() is None:
            await _sleep(execution, step, step.deadline_ms(seconds))


async def sleep_until(when: datetime) -> None:
    """Sleep until a moment, durably; one that has passed costs a record and no time.

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
    async with Builtin(execution, "sleep_until") as step:
        if await step.recorded() is None:
            await _sleep(execution, step, due_ms)


async def _sleep(execution: Execution, step: Builtin, due_ms: int) -> None:
    def look(news: News) -> bool | None:
        return True if news.now_ms >= due_ms else None

    until = datetime.fromtimestamp(due_ms / 1000, UTC).isoformat(" ", "seconds")
    await wait(execution, f"until {until}", look, due_ms=due_ms)
    # CRASH: awake and not recorded; the next life sees that the time has passed.
    await step.settle([(Kind.RESULT, step.id, write_body(None, value=b"null"))])


def check_seconds(seconds: float, what: str) -> None:
    """Check a time. Raises UsageError."""
    if type(seconds) not in (int, float) or not 0 <= seconds <= LONGEST_SECONDS:
        raise UsageError(f"{what}: {seconds!r} is no time", remedy="Give seconds, 0 or more")
