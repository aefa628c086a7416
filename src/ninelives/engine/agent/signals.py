"""Signals: messages that are sent to a run, in order per name, each taken once.

A signal is taken by the record that says so. If the code is cancelled before the signal is delivered to it,
the next record withdraws the step, and the signal is available to the next `receive`: in this process, after
a crash, and in the next turn. If we die between the two records, the next worker delivers the signal, or
repeats the cancellation on replay and gives the signal back then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, TypeVar, overload

from ninelives.core.errors import (
    Corrupt,
    Divergence,
    NineLivesError,
    NotSerializable,
    TimedOut,
    UsageError,
)
from ninelives.core.governance.taint import check_labels
from ninelives.core.ids import check_id, parse_step_id, step_id
from ninelives.core.journal.replay import CARRIED, Recorded, read_step_body, write_signal
from ninelives.core.model.inbox import Signal
from ninelives.core.model.run import Kind, News
from ninelives.core.model.totals import BUILTIN
from ninelives.core.values.codec import UNTYPED_CODEC, Codec, codec_for
from ninelives.engine.commit.ticket import NO_EXTRAS, Draft, Extras
from ninelives.engine.run.current import require_agent
from ninelives.engine.run.execution import Execution
from ninelives.engine.run.waits import check_seconds, deadline_ms, wait
from ninelives.engine.step.envelope import Builtin
from ninelives.engine.step.other_loops import at_home

T = TypeVar("T")
_LATE = "late"


def encode(value: object) -> bytes:
    """Encode the value of a signal. Raises NotSerializable with the path to the bad part."""
    try:
        return UNTYPED_CODEC.encode(value)
    except NotSerializable:
        if type(value).__module__ == "builtins":
            raise
        return codec_for(type(value)).encode(value)


@overload
async def receive(
    name: str,
    *,
    type: type[T],
    timeout: float | None = None,  # noqa: ASYNC109
    taint: str | Sequence[str] | None = None,
) -> T: ...
@overload
async def receive(
    name: str,
    *,
    type: Any = ...,
    timeout: float | None = None,  # noqa: ASYNC109
    taint: str | Sequence[str] | None = None,
) -> Any: ...
@at_home
async def receive(
    name: str,
    *,
    type: Any = Any,
    timeout: float | None = None,  # noqa: ASYNC109
    taint: str | Sequence[str] | None = None,
) -> Any:
    """Wait for the next signal of that name and return its value; the run may park until one comes.

    Each signal is taken once, in the order of sending. Raises TimedOut after `timeout` seconds; UsageError
    when the value does not fit `type`. In that case the signal is not taken: the next call may receive it as
    another type. `taint` is where the value comes from, as in `nl.action(taint=)`.
    """
    check_id(name, "signal name")
    labels = check_labels(taint, "nl.receive(taint=)")
    if timeout is not None:
        check_seconds(timeout, "nl.receive(timeout=)")
    execution = require_agent("nl.receive()", "Receive first, pass it on")
    codec = codec_for(type, where=f"nl.receive({name!r}, type=)")
    codec.require_keeping(f"the signal {name!r}", execution.run.id)
    async with Builtin(execution, f"receive:{name}") as step:
        found = await step.recorded(codec)
        if found is not None:
            return found.value
        due_ms = deadline_ms(step.position, timeout) if timeout is not None else None

        def check(news: News) -> Signal | str | None:
            waiting = [signal for signal in news.signals if signal.name == name]
            waiting += _returned(execution, name)
            if waiting:
                # The lowest number first, given back or still in the queue: signals keep their order.
                return min(waiting, key=lambda signal: signal.number)
            return _LATE if due_ms is not None and news.now_ms >= due_ms else None

        while True:
            got: Signal | str = await wait(execution, f"for the signal {name!r}", check, due_ms=due_ms)
            outcome = await _settle(step, got, codec, name, labels)
            if outcome is not None:
                return outcome[0]


async def _settle(
    step: Builtin, got: Signal | str, codec: Codec, name: str, taint: Sequence[str]
) -> tuple[Any] | None:
    """Record the outcome of the wait; None when the signal was gone, and the caller must wait again."""
    error: NineLivesError
    if isinstance(got, Signal):
        try:
            value = codec.decode(got.body)
        except (Divergence, Corrupt) as misfit:
            error = UsageError(
                f"signal {got.number} ({name!r}) is not what nl.receive(type=) says: {misfit.what}",
                run=step.execution.run.id,
                step=step.id,
                path=misfit.path,
                remedy="It was not taken: receive it as another type, or without one",
            )
        else:
            return (value,) if await _take(step, got, codec.received(value), taint) else None
    else:
        error = TimedOut(f"no signal {name!r} came in time", run=step.execution.run.id, step=step.id)
    return await step.raises(error)


async def _take(step: Builtin, signal: Signal, received: bytes | None, taint: Sequence[str]) -> bool:
    """Record that a signal is taken; False when it was gone already."""
    returned = step.execution.replay.returned
    body = write_signal(signal.number, signal.body, received, taint)
    # Removed before the commit: another branch must not take it meanwhile.
    is_returned = returned.pop(signal.number, None) is not None
    kind, extras = (Kind.RESULT, NO_EXTRAS) if is_returned else (Kind.SIGNAL, Extras(takes=(signal.number,)))
    try:
        # CRASH: taken or not taken, with the record that says so.
        is_taken = await step.settle([(kind, step.id, body)], extras)
    except asyncio.CancelledError:
        step.give_back(Recorded(-1, kind, step.id, read_step_body(body)))
        raise
    if is_taken and taint:
        step.execution.replay.taint.change(taint)
    return is_taken


def _returned(execution: Execution, name: str) -> list[Signal]:
    """Return the signals of that name that were taken and given back."""
    return [
        Signal(run=execution.run.id, number=number, name=name, id="", body=_value(taken), at_ms=0)
        for number, taken in execution.replay.returned.items()
        if parse_step_id(taken.step).name == f"receive:{name}"
    ]


def carried(execution: Execution) -> list[Draft]:
    """Return the records that carry signals that were given back into the next turn."""
    drafts: list[Draft] = []
    for number, taken in execution.replay.returned.items():
        step = step_id(CARRIED, parse_step_id(taken.step).name, number)
        drafts.append((Kind.WITHDRAWN, step, write_signal(number, _value(taken)), (), BUILTIN))
    return drafts


def _value(taken: Recorded) -> bytes:
    return bytes(taken.body.v or b"null")
