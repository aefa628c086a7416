"""The pause between two attempts of a step: a short one in memory, a long one as a durable wait.

Before a long pause the journal records how often the step was tried and when the next attempt is due. So a
run that died or parked meanwhile continues the count, and no execution tries earlier than the server allowed
(Retry-After).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from msgspec import UNSET, Struct, json

from ninelives.core.journal.replay import Attempt, read_body, write_body
from ninelives.core.model.run import Kind
from ninelives.core.model.totals import Facts, Retrying, error_text
from ninelives.core.values.retry import classify
from ninelives.engine.context import FRAME, Frame
from ninelives.engine.run.branch_task import current_branch
from ninelives.engine.run.current import execution_of
from ninelives.engine.run.waits import wait_until

LONG_SECONDS = 1.0
"""A pause of at least this length is recorded, and the run may park."""


class Pause(Struct, frozen=True):
    """The recorded state of a long pause: attempts so far, when to try again, and why."""

    attempts: int
    due_ms: int
    error: str = ""
    failures: tuple[Attempt, ...] = ()


_DECODE = json.Decoder(Pause).decode


async def attempts_before(frame: Frame) -> int:
    """Return how often earlier executions tried the step, after the rest of their recorded pause."""
    replay = frame.position.execution.replay
    known = replay.intents.get(frame.position.id)
    # A retry of the whole run supersedes the intent: it starts the count again.
    said = read_body(known).v if known is not None and replay.counts(known) else UNSET
    if said is UNSET:
        return 0
    pause = _DECODE(bytes(said))
    frame.failures = pause.failures
    await _rest(frame, pause)
    return pause.attempts


async def rest(frame: Frame, seconds: float, error: BaseException, *, of: int) -> None:
    """Pause after a failed attempt; `of` is the highest number of attempts."""
    if seconds < LONG_SECONDS:
        await asyncio.sleep(seconds)
        return
    execution = execution_of(frame.position)
    due_ms = execution.store.now_ms() + int(seconds * 1000)
    pause = Pause(frame.attempt, due_ms, error_text(error), frame.failures)
    retrying = Retrying(frame.position.id, frame.attempt, of, due_ms, pause.error, classify(error))
    # CRASH: tried and not recorded: the next worker does not count this attempt.
    body = write_body(frame.fingerprint, value=json.encode(pause), judged=frame.judged)
    # Not awaited here: the wait that follows begins once it is durable (`waits.ready`).
    execution.note(Kind.INTENT, frame.position.id, body, Facts(frame.kind, retrying=retrying))
    await _rest(frame, pause)


async def _rest(frame: Frame, pause: Pause) -> None:
    """Wait as agent code does, outside the body's frame, so that the run may park."""
    with outside(frame):
        what = f"to try {frame.position.name} again after {pause.attempts} ({pause.error})"
        await wait_until(execution_of(frame.position), pause.due_ms, what)


@contextmanager
def outside(frame: Frame) -> Iterator[None]:
    """Between two attempts, run the block as agent code runs: it may wait durably."""
    execution = execution_of(frame.position)
    branch = current_branch(execution.loop)
    frame.is_over = True  # its start is recorded: the intent timer need not record it
    if branch is not None:
        # No body runs meanwhile: with one, the run could not park.
        branch.body_of = None
    token = FRAME.set(None)
    try:
        yield
    finally:
        FRAME.reset(token)
        if branch is not None:
            branch.body_of = execution
