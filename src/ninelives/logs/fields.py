"""The current run and step as fields of every log record: ours, the user's, and those of libraries.

A filter of handlers, not a record factory: `extra={"run": ...}` of other code must go on to work.
"""

from __future__ import annotations

import logging
import sys
from typing import Any

from ninelives.core.step_ids import step_text
from ninelives.engine.context import EXECUTION, FRAME

NAMES = ("run", "agent", "step", "attempt", "turn", "epoch", "session", "trace_id", "span_id")
"""The fields that a filtered record always has; empty outside a run."""


_NOTHING = dict.fromkeys(NAMES, "")


class RunFields(logging.Filter):
    """Adds run, agent, step, attempt, turn, epoch, session and trace to records; refuses none."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Add the fields that the record does not have yet."""
        own = vars(record)
        added = {**_NOTHING, **_current(), **_trace()}
        added.update((name, own[name]) for name in NAMES if name in own)
        own.update(added)
        return True


def _current() -> dict[str, Any]:
    execution = EXECUTION.get()
    if execution is None:
        return {}
    run, frame = execution.run, FRAME.get()
    found = {"run": run.id, "agent": run.agent, "turn": execution.turn, "epoch": run.epoch}
    found["session"] = run.session or ""
    if frame is not None:
        found |= {"step": step_text(frame.position.id), "attempt": frame.attempt}
    return found


def _trace() -> dict[str, str]:
    """Return the ids of the current span, if the process uses OpenTelemetry."""
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None:
        return {}
    seen = trace.get_current_span().get_span_context()
    if not seen.is_valid:
        return {}
    return {"trace_id": f"{seen.trace_id:032x}", "span_id": f"{seen.span_id:016x}"}
