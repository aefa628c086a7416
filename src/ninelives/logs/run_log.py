"""The observer that logs what happens to runs, to the logger `ninelives`. See docs/decisions/0031.

A step without trouble logs nothing. Each message names the run, so that it also reads well in a format that
knows nothing of our fields; the fields are in `extra`.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from typing import Any

import msgspec

from ninelives.core.clock import moment
from ninelives.core.model.inbox import ItemKind, NewItem
from ninelives.core.model.run import State
from ninelives.core.model.totals import error_text
from ninelives.core.step_ids import step_text
from ninelives.engine import hooks
from ninelives.views.escape import shown

LOGGER = logging.getLogger("ninelives")
_MOST_HELD = 10_000
_ENDS = {State.COMPLETED: "completed", State.CANCELLED: "was cancelled"}


class RunLog(hooks.Observer):
    """Logs starts, retries, questions to people, escalations, recoveries and ends."""

    def __init__(self) -> None:
        self._failed: dict[tuple[str, int], tuple[str, str]] = {}
        """By run and epoch: the step that failed last, and why."""
        self._held: OrderedDict[tuple[str, str], str] = OrderedDict()
        """By run and step: what it waits for, which is logged once, although it asks again each minute."""

    def life_began(self, event: hooks.LifeBegan) -> None:
        """Log the start of a run: its first claim; later ones only continue it."""
        if event.epoch == 1:
            _log(logging.INFO, "started", event, "started")

    def attempt_failed(self, event: hooks.AttemptFailed) -> None:
        """Log a retry: what failed, why, and when it is tried again."""
        reason, step = error_text(event.error), step_text(event.step)
        due_ms = int(event.at_ms + event.pause_seconds * 1000)
        when = f"{moment(due_ms):%H:%M:%S}Z"
        what = f"{step} failed, attempt {event.attempt} of {event.of}; the next is at {when}: {reason}"
        known = {"step": step, "attempt": event.attempt, "of": event.of, "next_attempt": _text(due_ms)}
        self._failed[event.run, event.epoch] = step, reason
        _log(logging.WARNING, "retried", event, what, reason=reason, **known)

    def held(self, event: hooks.CallHeld) -> None:
        """Log that a call waits for a halt, a breaker, a budget or a rate; once for each of these."""
        if self._held.get((event.run, event.step)) == event.what:
            return
        self._held[event.run, event.step] = event.what
        if len(self._held) > _MOST_HELD:
            self._held.popitem(last=False)
        step = step_text(event.step)
        _log(logging.WARNING, "held", event, f"{step} waits {event.what}", reason=event.what, step=step)

    def denied(self, event: hooks.CallDenied) -> None:
        """Log that a call was denied: the agent may go on without it, and end well."""
        step = step_text(event.step)
        _log(logging.WARNING, "denied", event, f"{step} was denied: {event.why}", reason=event.why, step=step)

    def items_opened(self, event: hooks.ItemsOpened) -> None:
        """Log that a run waits for a person."""
        for item in event.items:
            reason, to = _question(item), item.to or "a person"
            known = {"step": step_text(item.step), "item": item.id, "kind": item.kind.value}
            _log(
                logging.WARNING,
                "asked",
                event,
                f"waits for {to} ({item.kind}): {reason}",
                reason=reason,
                **known,
            )

    def escalated(self, event: hooks.RunEscalation) -> None:
        """Log that a run is stopped until a person decides, or is quarantined."""
        kinds = {kind for _, kind in event.items}
        what = "quarantined" if ItemKind.QUARANTINE in kinds else "escalated"
        known = {"item": event.items[0][0], "kind": event.items[0][1].value} if event.items else {}
        reason = event.waits.removeprefix("for a person: ")
        _log(
            logging.ERROR, what, event, f"is {what}, it waits for a person: {reason}", reason=reason, **known
        )

    def agent_raised(self, event: hooks.AgentRaised) -> None:
        """Keep which step made the agent fail, for the line about its end."""
        if step := getattr(event.error, "step", None):
            self._failed[event.run, event.epoch] = step_text(str(step)), error_text(event.error)

    def ended(self, event: hooks.RunEnded) -> None:
        """Log the end of a run."""
        step, reason = self._failed.pop((event.run, event.epoch), ("", ""))
        if event.state is not State.FAILED:
            _log(logging.INFO, event.state.value, event, _ENDS[event.state])
            return
        if reason != event.error:
            step = ""  # the agent handled that failure, and failed for another reason
        where = f" in {step}" if step else ""
        _log(
            logging.ERROR, "failed", event, f"failed{where}: {event.error}", reason=event.error, **_step(step)
        )

    def life_left(self, event: hooks.LifeLeft) -> None:
        """Forget what was kept of a run that did not end here."""
        self._failed.pop((event.run, event.epoch), None)

    def recovered(self, event: hooks.RunRecovered) -> None:
        """Log that a run made progress again after its worker had died or was stopped."""
        if not LOGGER.isEnabledFor(logging.INFO):
            return
        took_ms = max(0, event.progress_ms - event.taken_ms)
        what = (
            f"was recovered from session {event.left_by}: {event.replayed} steps replayed, "
            f"progress {took_ms} ms after it was claimed"
        )
        known: dict[str, Any] = {"run": event.run, "agent": event.agent, "epoch": event.epoch}
        known |= {"left_by": event.left_by}
        known |= {"event": "recovered", "replayed": event.replayed, "took_ms": took_ms}
        _handle(logging.INFO, f"run {event.run} ({event.agent}) {what}", known)


def _log(level: int, what: str, event: hooks.RunEvent, line: str, **known: Any) -> None:
    if LOGGER.isEnabledFor(level):
        known |= {"event": what, "run": event.run, "agent": event.agent, "turn": event.turn}
        known |= {"epoch": event.epoch, "session": event.session}
        _handle(level, f"run {event.run} ({event.agent}) {line}", known)


def _handle(level: int, line: str, known: dict[str, Any]) -> None:
    # As LOGGER.log does, but without a search of the stack for the caller, which is always this module.
    record = logging.LogRecord(LOGGER.name, level, __file__, 0, shown(line), None, None)
    record.__dict__.update(known)
    LOGGER.handle(record)


def _question(item: NewItem) -> str:
    return str(msgspec.json.decode(item.body).get("what", ""))


def _step(step: str) -> dict[str, str]:
    return {"step": step} if step else {}


def _text(at_ms: int) -> str:
    return moment(at_ms).isoformat(timespec="milliseconds").replace("+00:00", "Z")
