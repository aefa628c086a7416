"""The pause between two attempts at a step: a short one in memory, a long one durably.

Before a long pause the journal says how often the step was tried and when it is tried next, so a run that
died or parked meanwhile goes on counting, and no life asks earlier than it was told to (Retry-After).
"""

from __future__ import annotations

import asyncio

from msgspec import UNSET, Struct, json

from ninelives.core.journal.replay import Attempt, read_body, write_body
from ninelives.core.model.run import Kind, News
from ninelives.core.model.totals import Facts, Retrying, error_text
from ninelives.engine.context import FRAME, Frame
from ninelives.engine.run.current import execution_of
from ninelives.engine.run.execution import BranchTask, Execution
from ninelives.engine.run.waits import wait

LONG_SECONDS = 1.0
"""From here on a pause is recorded, and the run may park."""


class Pause(Struct, frozen=True):
    """What is recorded of a long pause: attempts so far, when to try again, and why."""

    attempts: int
    due_ms: int
    error: str = ""
    failures: tuple[Attempt, ...] = ()


_DECODE = json.Decoder(Pause).decode


async def attempts_before(frame: Frame) -> int:
    """Return how often earlier lives tried the step; waits out the pause that they had begun."""
    replay = frame.place.execution.replay
    known = replay.intents.get(frame.place.id)
    said = read_body(known).v if known is not None and replay.counts(known) else UNSET
    if said is UNSET:
        return 0
    pause = _DECODE(bytes(said))
    frame.failures = pause.failures
    await _rest(frame, pause)
    return pause.attempts


async def rest(frame: Frame, seconds: float, error: BaseException, *, of: int) -> None:
    """Pause after a failed attempt, of so many."""
    if seconds < LONG_SECONDS:
        await asyncio.sleep(seconds)
        return
    execution = execution_of(frame.place)
    due_ms = execution.store.now_ms() + int(seconds * 1000)
    pause = Pause(frame.attempt, due_ms, error_text(error), frame.failures)
    retrying = Retrying(frame.place.id, frame.attempt, of, due_ms, pause.error)
    # CRASH: tried and not recorded: the next life does not count this attempt.
    body = write_body(frame.asked, value=json.encode(pause))
    execution.note(Kind.INTENT, frame.place.id, body, Facts(frame.kind, retrying=retrying))
    await _rest(frame, pause)


async def _rest(frame: Frame, pause: Pause) -> None:
    """Wait as the run's own code does: no body is at work, and all may be evicted."""

    def look(news: News) -> bool | None:
        return True if news.now_ms >= pause.due_ms else None

    execution = execution_of(frame.place)
    branch = _branch(execution)
    frame.is_over = True  # it is known to have started
    if branch is not None:
        branch.body_of = None
    token = FRAME.set(None)
    try:
        what = f"to try {frame.place.name} again after {pause.attempts} ({pause.error})"
        await wait(execution, what, look, due_ms=pause.due_ms)
    finally:
        FRAME.reset(token)
        if branch is not None:
            branch.body_of = execution


def _branch(execution: Execution) -> BranchTask | None:
    task = asyncio.current_task(execution.loop)
    return task if isinstance(task, BranchTask) else None
