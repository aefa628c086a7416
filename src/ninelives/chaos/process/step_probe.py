"""Log the user's steps: when each body begins and ends, and every divergence that replay reports.

Installed only in the processes of a trial, before the user's code is loaded: it wraps every function that is
declared as a step on its way to the registry. So the runtime pays nothing for it elsewhere.
"""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from msgspec import structs

import ninelives
from ninelives.chaos.ledger import Ledger, What
from ninelives.chaos.process.effect_recorder import EffectRecorder, name_of
from ninelives.chaos.process.fault_injection import FaultInjector
from ninelives.chaos.protocol import FaultMoment
from ninelives.core.errors import Divergence, UsageError
from ninelives.core.step_ids import step_text
from ninelives.engine.agent import basics, decorators
from ninelives.engine.context import FRAME, Frame
from ninelives.engine.run import call_site, lookup
from ninelives.engine.spec.registry import Agent, Step, location_of
from ninelives.runtime.agent_loader import raised_at

_VALUE_CHARACTERS = 4_000
_LIVES = 1_000
"""`lives` of every agent: a death injected by chaos does not mean that the run kills its workers."""
_NOTHING = object()


class StepProbe:
    """Wraps all agents and steps that are declared from now on."""

    def __init__(self, ledger: Ledger, injector: FaultInjector, recorder: EffectRecorder) -> None:
        self._ledger, self._injector, self._recorder = ledger, injector, recorder

    def watch(self) -> None:
        """Wrap every step that is declared from now on, and log the divergences that replay reports."""
        make_step = vars(decorators)["make_step"]

        def make_watched(function: Callable[..., Any], **options: Any) -> Step:
            known: list[Step] = []
            step: Step = make_step(self._wrapped(function, known), **options)
            known.append(step)
            self._declared(step)
            return step

        vars(decorators)["make_step"] = make_watched
        vars(decorators)["make_agent"] = self._hardy(vars(decorators)["make_agent"])
        vars(call_site)["_OURS"] = (*vars(call_site)["_OURS"], str(Path(__file__).parents[1]))
        for refusal in ("changed", "not_asked_for", "weaker"):
            vars(lookup)[refusal] = self._refused(vars(lookup)[refusal])
        asked = basics.key

        @functools.wraps(asked)
        def key() -> str:
            found = asked()
            frame = FRAME.get()
            self._ledger.write(What.KEY, step=name_of(frame) if frame is not None else "")
            return found

        basics.key = ninelives.key = key
        logging.getLogger("ninelives.run").addHandler(_Changes(self._ledger, self._recorder))

    # Agents -------------------------------------------------------------------------------------

    def _hardy(self, make: Callable[..., Agent]) -> Callable[..., Agent]:
        @functools.wraps(make)
        def make_hardy(*args: Any, **kwargs: Any) -> Agent:
            agent = make(*args, **kwargs)
            return structs.replace(agent, lives=_LIVES, function=self._wrapped_agent(agent))

        return make_hardy

    def _wrapped_agent(self, agent: Agent) -> Callable[..., Any]:
        """Wrap an agent's code to log the line where it raises: a recorded error has no line."""
        if agent.is_async:

            @functools.wraps(agent.function)
            async def code(*args: Any, **kwargs: Any) -> Any:
                try:
                    return await agent.function(*args, **kwargs)
                except Exception as error:
                    self._fails(error)
                    raise

            return code

        @functools.wraps(agent.function)
        def plain(*args: Any, **kwargs: Any) -> Any:
            try:
                return agent.function(*args, **kwargs)
            except Exception as error:
                self._fails(error)
                raise

        return plain

    def _fails(self, error: Exception) -> None:
        place = self._recorder.shown(raised_at(error) or "")
        self._ledger.write(What.RAISED, kind=type(error).__name__, place=place)

    # Bodies -------------------------------------------------------------------------------------

    def _wrapped(self, function: Callable[..., Any], known: list[Step]) -> Callable[..., Any]:
        if inspect.iscoroutinefunction(inspect.unwrap(function)):

            @functools.wraps(function)
            async def body(*args: Any, **kwargs: Any) -> Any:
                frame = FRAME.get()
                if frame is None:
                    return await function(*args, **kwargs)
                self._begins(frame)
                try:
                    with self._recorder.inside(frame):
                        value = await function(*args, **kwargs)
                except BaseException as error:
                    self._raised(frame, error)
                    raise
                return self._ends(known[0], frame, value)

            return body

        @functools.wraps(function)
        def plain(*args: Any, **kwargs: Any) -> Any:
            frame = FRAME.get()
            if frame is None:
                return function(*args, **kwargs)
            self._begins(frame)
            try:
                with self._recorder.inside(frame):
                    value = function(*args, **kwargs)
            except BaseException as error:
                self._raised(frame, error)
                raise
            return self._ends(known[0], frame, value)

        return plain

    def _begins(self, frame: Frame) -> None:
        place = frame.place
        step = name_of(frame)
        waited_ms = place.execution.clock.boot_ms() - frame.admitted_ms
        data = {
            "attempt": frame.attempt,
            "name": place.name,
            "turn": place.execution.turn,
            "admitted_ago": waited_ms / 1000 if frame.admitted_ms else 0.0,
        }
        self._ledger.write(What.BEGIN, step=step, target=place.key(), data=data)
        self._injector.reach(FaultMoment.BEGIN, step_text(step))

    def _ends(self, step: Step, frame: Frame, value: Any) -> Any:
        if frame.place.name != step.name:
            return value  # a step called inside a step is part of the outer one
        text = ""
        try:
            data, back = step.codec.round(value)
            text = data.decode() if len(data) <= _VALUE_CHARACTERS else ""
            lost = _lost(value, back, "$")
        except UsageError as error:
            lost = f"{error.what}, at {error.path or '$'}"
        if lost:
            self._ledger.write(
                What.MISFIT,
                step=name_of(frame),
                kind=type(value).__name__,
                place=self._place(step),
                text=lost,
            )
        self._ledger.write(What.END, step=name_of(frame), kind="returned", text=text)
        self._injector.reach(FaultMoment.END, step_text(name_of(frame)))
        return value

    def _raised(self, frame: Frame, error: BaseException) -> None:
        place = self._recorder.shown(raised_at(error) or "")
        self._ledger.write(What.END, step=name_of(frame), kind="raised", place=place, text=repr(error))

    def _declared(self, step: Step) -> None:
        effect = step.effect
        self._ledger.write(
            What.DECLARED,
            step=step.name,
            place=self._place(step),
            data={
                "is_resumable": effect is None or effect.resumable,
                "is_decision": step.is_decision,
                "reads_only": step.reads_only,
                "is_transactional": step.is_transactional,
            },
        )

    def _place(self, step: Step) -> str:
        return self._recorder.shown(location_of(step.function))

    def _refused(self, make: Callable[..., Divergence]) -> Callable[..., Divergence]:
        def refused(asking: lookup.StepLookup, found: Any) -> Divergence:
            error = make(asking, found)
            self._diverged(found.step, asking.where(), error)
            return error

        return refused

    def _diverged(self, step: str, where: str, error: Divergence) -> None:
        place = self._recorder.shown(where.partition(" (")[0])
        text = error.what
        # Keep only the difference: these words end the first part of the messages that raise Divergence.
        for prefix in ("recorded: ", "is unknown: "):
            text = text.partition(prefix)[2] or text
        self._ledger.write(What.DIVERGED, step=step, place=place, text=text)


class _Changes(logging.Handler):
    """Catches the log warning that a body changes its arguments (`engine.spec.argument_changes`)."""

    def __init__(self, ledger: Ledger, recorder: EffectRecorder) -> None:
        super().__init__()
        self._ledger, self._recorder = ledger, recorder

    def emit(self, record: logging.LogRecord) -> None:
        """Log the step that changes its arguments, recognised by the warning's text."""
        if isinstance(record.args, tuple) and "changes its arguments" in str(record.msg):
            name, place = map(str, record.args)
            self._ledger.write(What.CHANGED, step=name, place=self._recorder.shown(place))


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
