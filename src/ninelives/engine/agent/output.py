"""Output of a run (`nl.emit`): gathered for some milliseconds, then recorded in order.

- An emit inside a step does not wait for a sync: items become durable as a prefix of the journal, before the
  step's result. An emit waits only when too much is pending, so that memory use stays bounded.
- A step's output is final once the step has a result. The output of an attempt that failed, was withdrawn or
  died is retracted, before the next attempt starts or the failure is delivered.
- Output that the agent itself emits is not recorded again on replay, like its log lines.

# CRASH: emitted and not recorded: no reader has seen it, and the code that emitted it runs and emits again.
# CRASH: recorded, and the step has no outcome: the next worker retracts it before it starts the step again.
"""

from __future__ import annotations

import asyncio
from typing import Any

from ninelives.core.errors import NotSerializable
from ninelives.core.journal.output import encode_item, write_output
from ninelives.core.model.run import Kind
from ninelives.engine.context import FRAME, Frame, WayFrame
from ninelives.engine.run.current import current
from ninelives.engine.run.execution import Execution
from ninelives.engine.step.threads import refuse_on_loop


async def emit(value: object) -> None:
    """Append a value to the run's output, which `run.stream()` reads.

    Inside a step, the value is retracted if this attempt of the step gives no result. Without a runtime in
    the process it does nothing. Raises NotSerializable.
    """
    execution = current("nl.emit()")
    if execution is None:
        return  # no runtime in this process: steps are ordinary functions, and nothing reads the output
    data, frame = _encoded(execution, value), FRAME.get()
    if frame is None:
        _emit_own(execution, data)
        await asyncio.sleep(0)  # as on replay; a loop that only emits must not block the event loop
    else:
        await _add(execution, frame, data)


def emit_from_thread(value: object) -> None:
    """Append a value to the run's output, like `emit`, from plain code in a thread of the run."""
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
    if isinstance(frame, WayFrame) and not frame.may_emit():
        return  # another request of this step has emitted first, and is the one that answers
    flooded = execution.output_buffer().add(frame, data)
    if flooded is not None:
        # A sealed execution gets no verdict: without this, the emit would wait until it is cancelled.
        ends: list[asyncio.Future[Any]] = [flooded, execution.when_sealed()]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)


def _encoded(execution: Execution, value: object) -> bytes:
    try:
        return encode_item(value)
    except NotSerializable as error:
        frame = FRAME.get()
        error.run, error.step = execution.run.id, frame.position.id if frame else "emit"
        raise


def _emit_own(execution: Execution, data: bytes) -> None:
    position = execution.next_position("emit")
    if not execution.replay.knows_line(position.id):
        execution.note(Kind.OUTPUT, position.id, write_output(execution.turn, 0, [data]))
