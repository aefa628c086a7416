"""Log the user's steps: when each body begins and ends, and every divergence that replay reports.

It observes the process of a trial from before the user's code is loaded.
"""

from __future__ import annotations

from typing import Any

from ninelives.chaos.ledger import Ledger, What
from ninelives.chaos.process.effect_recorder import EffectRecorder
from ninelives.chaos.process.fault_injection import FaultInjector
from ninelives.chaos.protocol import FaultMoment, step_in
from ninelives.core.errors import UsageError
from ninelives.core.step_ids import step_text
from ninelives.engine import hooks
from ninelives.engine.context import FRAME, Frame
from ninelives.engine.spec.registry import Step, location_of
from ninelives.runtime.agent_loader import raised_at

_VALUE_CHARACTERS = 4_000
_NOTHING = object()


class StepProbe(hooks.Observer):
    """Writes what the engine reports into the ledger, and fires faults around bodies."""

    def __init__(self, ledger: Ledger, injector: FaultInjector, recorder: EffectRecorder) -> None:
        self._ledger, self._injector, self._recorder = ledger, injector, recorder
        self._bodies: dict[tuple[str, str, int], Frame] = {}

    def declared(self, event: hooks.StepDeclared) -> None:
        """Log a declaration."""
        step = event.declared
        data = {
            "is_resumable": step.effect is None or step.effect.resumable,
            "is_decision": step.is_decision,
            "reads_only": step.reads_only,
            "is_transactional": step.is_transactional,
        }
        self._ledger.write(What.DECLARED, step=step.name, location=self._location(step), data=data)

    def body_began(self, event: hooks.BodyBegan) -> None:
        """Log it; perhaps die here."""
        step = step_in(event.run, event.step)
        data = {
            "attempt": event.attempt,
            "name": event.name,
            "turn": event.turn,
            "admitted_ago": event.admitted_ms_ago / 1000,
        }
        self._ledger.write(What.BEGIN, step=step, target=event.key, data=data)
        self._injector.reach(FaultMoment.BEGIN, step_text(step))
        if (frame := FRAME.get()) is not None:
            self._bodies[event.run, event.step, event.attempt] = frame
            self._recorder.begin(frame)

    def body_ended(self, event: hooks.BodyEnded) -> None:
        """Log how; perhaps die here, before anything of it is recorded."""
        # Not FRAME: an abandoned coroutine is garbage-collected in another context.
        if (frame := self._bodies.pop((event.run, event.step, event.attempt), None)) is not None:
            self._recorder.end(frame)
        step, error = step_in(event.run, event.step), event.error
        if error is not None:
            location = self._recorder.shown(raised_at(error) or "")
            self._ledger.write(What.END, step=step, kind="raised", location=location, text=repr(error))
            return
        text, lost = _kept(event.declared, event.value)
        if lost:
            kind, location = type(event.value).__name__, self._location(event.declared)
            self._ledger.write(What.MISFIT, step=step, kind=kind, location=location, text=lost)
        self._ledger.write(What.END, step=step, kind="returned", text=text)
        self._injector.reach(FaultMoment.END, step_text(step))

    def key_read(self, event: hooks.KeyRead) -> None:
        """Log that a body asked for its key."""
        self._ledger.write(What.KEY, step=step_in(event.run, event.step))

    def arguments_changed(self, event: hooks.ArgumentsChanged) -> None:
        """Log a body that changes its arguments."""
        self._ledger.write(What.CHANGED, step=event.declared.name, location=self._location(event.declared))

    def diverged(self, event: hooks.RunDiverged) -> None:
        """Log a call that the journal contradicts."""
        error = event.error
        if error.where:
            location = self._recorder.shown(error.where.partition(" (")[0])
            text = error.difference or error.what
            self._ledger.write(What.DIVERGED, step=error.step or "", location=location, text=text)

    def agent_raised(self, event: hooks.AgentRaised) -> None:
        """Log the line where the agent's code raises: a recorded error has no line."""
        if isinstance(event.error, Exception):
            location = self._recorder.shown(raised_at(event.error) or "")
            self._ledger.write(What.RAISED, kind=type(event.error).__name__, location=location)

    def _location(self, step: Step) -> str:
        return self._recorder.shown(location_of(step.function))


def _kept(step: Step, value: Any) -> tuple[str, str]:
    """Return what is recorded of a value (empty if it is long), and what is lost of it."""
    try:
        data, back = step.codec.round(value)
    except UsageError as error:
        return "", f"{error.what}, at {error.path or '$'}"
    return data.decode() if len(data) <= _VALUE_CHARACTERS else "", _lost(value, back, "$")


def _lost(value: Any, back: Any, path: str) -> str:
    """Describe the first attribute that a value lost in the codec, even if `==` calls the two equal."""
    if isinstance(value, dict) and isinstance(back, dict):
        pairs = [(f"{path}[{key!r}]", one, back.get(key)) for key, one in value.items()]
    elif isinstance(value, list | tuple) and isinstance(back, list | tuple):
        pairs = [(f"{path}[{at}]", *pair) for at, pair in enumerate(zip(value, back, strict=False))]
    elif hasattr(value, "__dict__") and type(value) is type(back):
        there = vars(back)
        gone = [name for name, one in vars(value).items() if not _same(there.get(name, _NOTHING), one)]
        if gone:
            return f"the attribute {gone[0]!r} of {type(value).__name__} is lost, at {path}"
        return ""
    else:
        return ""
    return next((lost for where, one, other in pairs if (lost := _lost(one, other, where))), "")


def _same(left: Any, right: Any) -> bool:
    try:
        return left is right or bool(left == right)
    except Exception:  # noqa: BLE001 (a class whose __eq__ raises is not equal)
        return False
