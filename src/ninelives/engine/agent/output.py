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
from typing import TYPE_CHECKING, Any

from ninelives.core.errors import NotSerializable
from ninelives.core.journal.output import ITEMS_PER_RECORD, encode_item, write_output
from ninelives.core.model.run import Kind
from ninelives.engine.context import FRAME, Frame, current

if TYPE_CHECKING:
    from ninelives.core.model.commit import Verdict
    from ninelives.engine.run.execution import Execution

FLUSH_SECONDS = 0.02
"""How long items of a step wait for others to be recorded with."""
FLUSH_BYTES = 32 * 1024
_FLUSH_ITEMS = ITEMS_PER_RECORD // 2


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
    from ninelives.engine.step.threads import refuse_on_loop

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


class _Emitting:
    """A step that emits: its attempt, whether something of it is recorded, and what is not yet."""

    __slots__ = ("attempt", "is_recorded", "items", "size")

    def __init__(self, attempt: int, is_recorded: bool) -> None:
        self.attempt, self.is_recorded = attempt, is_recorded
        self.items: list[bytes] = []
        self.size = 0


class OutputBuffer:
    """What the steps of one execution emit. On the event loop's thread only."""

    def __init__(self, execution: Execution) -> None:
        self._execution = execution
        self._steps = {
            step: _Emitting(attempt, stands) for step, (attempt, stands) in execution.replay.emitted.items()
        }
        self._is_set = False

    def begin(self, step: str) -> None:
        """Retract what earlier attempts at a step have emitted, before the next one begins."""
        emitting = self._steps.get(step)
        if emitting is not None:
            self._retract(step, emitting)

    def settle(self, step: str, *, stands: bool) -> None:
        """Record what a step has emitted before its result, or withdraw it before its failure."""
        emitting = self._steps.pop(step, None)
        if emitting is None:
            return
        if stands:
            self._flush(step, emitting)
        else:
            self._retract(step, emitting)

    def add(self, frame: Frame, data: bytes) -> asyncio.Future[Verdict] | None:
        """Add an item; returns what to wait for when there is too much to keep in memory."""
        step = frame.place.id
        emitting = self._steps.setdefault(step, _Emitting(1, False))
        emitting.items.append(data)
        emitting.size += len(data)
        if emitting.size >= FLUSH_BYTES or len(emitting.items) >= _FLUSH_ITEMS:
            return self._flush(step, emitting)
        if not self._is_set:
            self._is_set = True
            self._execution.loop.call_later(FLUSH_SECONDS, self._flush_all)
        return None

    def _flush_all(self) -> None:
        self._is_set = False
        for step, emitting in self._steps.items():
            self._flush(step, emitting)

    def _flush(self, step: str, emitting: _Emitting) -> asyncio.Future[Verdict] | None:
        items, emitting.items, emitting.size = emitting.items, [], 0
        if not items or self._execution.sealed is not None:
            return None
        emitting.is_recorded = True
        body = write_output(self._execution.turn, emitting.attempt, items)
        return self._execution.write([(Kind.OUTPUT, step, body)])

    def _retract(self, step: str, emitting: _Emitting) -> None:
        emitting.items, emitting.size = [], 0
        if not emitting.is_recorded or self._execution.sealed is not None:
            return
        emitting.attempt, emitting.is_recorded = emitting.attempt + 1, False
        body = write_output(self._execution.turn, emitting.attempt, [], retracts=True)
        self._execution.write([(Kind.OUTPUT, step, body)])
