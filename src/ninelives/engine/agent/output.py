"""What code inside a run emits: gathered for some milliseconds, then recorded in order.

- An emit inside a step waits for no sync: items become durable as a prefix of the journal, before the step's
  result. Only a flood waits, so that memory stays flat.
- What a step has emitted stands once the step has given its result. An attempt that failed, was withdrawn or
  died is retracted, before the next one starts or the failure is told.
- What the agent itself emits is passed over on replay, like its log.

# CRASH: emitted and not recorded: nobody has read it, and whoever emitted it runs again and emits it again.
# CRASH: recorded, and the step has no outcome: the next life retracts it before it begins the step again.
"""

from __future__ import annotations

import asyncio
from typing import Any

from ninelives.core.errors import NotSerializable
from ninelives.core.journal.output import encode_item, write_output
from ninelives.core.model.run import Kind
from ninelives.engine.context import FRAME, Frame
from ninelives.engine.run.current import current
from ninelives.engine.run.execution import Execution
from ninelives.engine.run.output_buffer import OutputBuffer
from ninelives.engine.step.threads import refuse_on_loop


async def emit(value: object) -> None:
    """Add a value to the run's output, for those who read `run.stream()`.

    Inside a step: withdrawn if this attempt at the step gives no result. Raises NotSerializable.
    """
    execution = current("nl.emit()")
    if execution is None:
        return  # no runtime in this process: steps are ordinary functions, and nobody reads
    data, frame = _encoded(execution, value), FRAME.get()
    if frame is None:
        _emit_own(execution, data)
        await asyncio.sleep(0)  # as on replay; so a loop that only emits holds up nobody
    else:
        await _add(execution, frame, data)


def emit_from_thread(value: object) -> None:
    """Do as `emit`, from plain code in a thread of the run."""
    execution = current("nl.sync.emit()")
    if execution is None:
        return
    data, frame = _encoded(execution, value), FRAME.get()
    if frame is None:
        _emit_own(execution, data)
        return
    refuse_on_loop(execution, "nl.sync.emit")
    asyncio.run_coroutine_threadsafe(_add(execution, frame, data), execution.loop).result()


async def _add(execution: Execution, frame: Frame, data: bytes) -> None:
    flooded = outlet_of(execution).add(frame, data)
    if flooded is not None:
        ends: list[asyncio.Future[Any]] = [flooded, execution.when_sealed()]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)


def outlet_of(execution: Execution) -> OutputBuffer:
    """Return where the steps of an execution emit; made when the first one does."""
    if execution.output is None:
        execution.output = OutputBuffer(execution)
    return execution.output


def _encoded(execution: Execution, value: object) -> bytes:
    try:
        return encode_item(value)
    except NotSerializable as error:
        frame = FRAME.get()
        error.run, error.step = execution.run.id, frame.place.id if frame else "emit"
        raise


def _emit_own(execution: Execution, data: bytes) -> None:
    place = execution.place("emit")
    if not execution.replay.knows_line(place.id):
        execution.note(Kind.OUTPUT, place.id, write_output(execution.turn, 0, [data]))
