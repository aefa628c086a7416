"""What a run waits for, in words: a retry, a time, a person, a worker."""

from __future__ import annotations

from ninelives.core.clock import moment
from ninelives.core.model.run import State
from ninelives.core.model.totals import Retrying
from ninelives.core.step_ids import step_text
from ninelives.views.position import Summary

_WORKER = "for a worker"


def waiting(run: Summary, now_seconds: float) -> str:
    """Return what a run waits for; of a failed run, why it failed; empty if it waits for nothing."""
    if run.status is State.FAILED:
        return run.error
    if run.status.is_final:
        return ""
    if run.retrying is not None and run.status is not State.ESCALATED:
        return retrying_text(run.retrying, now_seconds)
    if run.next_wake_up is not None and run.status is State.PENDING:
        due = run.next_wake_up.timestamp()
        return f"to start at {_time(due, now_seconds)}" if due > now_seconds else _WORKER
    is_due = run.next_wake_up is not None and run.next_wake_up.timestamp() <= now_seconds
    # Answered or notified: what it waited for has come, and only a worker is missing.
    if is_due and run.status is State.CHECKPOINTED and run.waits != _WORKER:
        return f"{_WORKER}; until now: {run.waits}" if run.waits else _WORKER
    return run.waits


def retrying_text(known: Retrying, now_seconds: float) -> str:
    """Return a retry in words: which step, when, which attempt of how many, and why."""
    due = known.due_ms / 1000
    when = f"again at {_time(due, now_seconds)}" if due > now_seconds else "again now"
    attempt = f"attempt {known.attempt + 1} of {known.of}"
    return f"to try {step_text(known.step)} {when}, {attempt}: {known.error}"


def _time(seconds: float, now_seconds: float) -> str:
    when, now = moment(int(seconds * 1000)), moment(int(now_seconds * 1000))
    return f"{when:%H:%M:%S}Z" if when.date() == now.date() else f"{when:%Y-%m-%d %H:%M:%S}Z"
