"""A call of a step that declares alternatives, a hedge or a cache.

It is a call like any other (`resumable.perform`), but what answers the runtime's model calls is asked in
place of its function. Such steps have this entry from their declaration, so that no other step pays for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

from ninelives.core.errors import InvariantViolation
from ninelives.engine.context import EXECUTION, FRAME, Frame
from ninelives.engine.model_calls import Asks, AsksModels
from ninelives.engine.run.current import current
from ninelives.engine.run.execution import Execution
from ninelives.engine.spec import functions
from ninelives.engine.spec.model_calls import ModelCall, Way
from ninelives.engine.spec.registry import Step
from ninelives.engine.step import other_loops, resumable, threads


async def call(step: Step, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call such a step that is `async def`."""
    execution: Any = EXECUTION.get()
    if execution is None:
        execution = current(step.name)
    if execution is None or FRAME.get() is not None:
        # As any step: outside runs an ordinary function, inside a step a part of its body.
        resumable.refuse_inside(execution, step, args, kwargs)
        return await step.function(*args, **kwargs)
    if asyncio.get_running_loop() is not execution.loop:
        return await other_loops.ask(execution, step, args, kwargs, perform, _functions(step))
    return await perform(execution, step, args, kwargs, *_functions(step))


def call_plain(step: Step, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call such a step that is plain `def`. Raises UsageError on the event loop's own thread."""
    execution = current(step.name)
    if execution is None or FRAME.get() is not None:
        resumable.refuse_inside(execution, step, args, kwargs)
        return step.function(*args, **kwargs)
    return threads.ask(execution, step, args, kwargs, perform, _functions(step))


def _functions(step: Step) -> list[Asks]:
    return [way.function if way.step is None else _as_part(way) for way in _declared(step).ways]


def _as_part(way: Way) -> Asks:
    """Return what asks an alternative that is a step: it is governed as any step inside another one."""

    def refuse(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        execution: Any = EXECUTION.get()
        resumable.refuse_inside(execution, way.step, args, kwargs)

    async def ask(*args: Any, **kwargs: Any) -> Any:
        refuse(args, kwargs)
        return await way.function(*args, **kwargs)

    def ask_plain(*args: Any, **kwargs: Any) -> Any:
        refuse(args, kwargs)
        return way.function(*args, **kwargs)

    return ask if functions.is_async(way.function) else ask_plain


def _declared(step: Step) -> ModelCall:
    if step.model_call is None:
        raise InvariantViolation(f"{step.name} declares nothing of its model calls")
    return step.model_call


async def perform(
    execution: Execution, step: Step, args: tuple[Any, ...], kwargs: dict[str, Any], *ways: Asks
) -> Any:
    """Return the recorded answer of a step at its position in the run; if there is none, ask."""
    executed: list[tuple[AsksModels, Frame]] = []

    def ask(*passed: Any, **named: Any) -> Awaitable[Any]:
        frame, asking = FRAME.get(), execution.asking
        if frame is None or asking is None:  # a rehearsal (`check`) executes nothing, and asks nothing
            raise InvariantViolation(f"{step.name} is executed where nothing answers model calls")
        asks = asking.get()
        executed[:] = [(asks, frame)]
        return asks.answer(execution, step, frame, ways, passed, named)

    function = ask if execution.body_hooks is None else execution.body_hooks.around(step, ask)
    value = await resumable.perform(execution, step, args, kwargs, function)
    for asks, frame in executed:  # not on replay
        _when_durable(execution, step, asks, frame)
    return value


def _when_durable(execution: Execution, step: Step, asks: AsksModels, frame: Frame) -> None:
    """Report an outcome once it is durable: at once, unless it was delivered early (pipelined)."""
    answered = execution.when_answered()
    if answered is None:
        asks.recorded(execution, step, frame)
        return

    def report(_: object) -> None:
        if execution.sealed is None:
            asks.recorded(execution, step, frame)

    answered.add_done_callback(report)
