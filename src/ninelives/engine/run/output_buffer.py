"""Buffer what the steps of one execution emit for some milliseconds, then record it in order."""

from __future__ import annotations

import asyncio

from ninelives.core.journal.output import ITEMS_PER_RECORD, write_output
from ninelives.core.model.commit import Verdict
from ninelives.core.model.run import Kind
from ninelives.engine.context import Frame, Running

FLUSH_SECONDS = 0.02
"""How long items are buffered, so that more of them fit into one record."""
FLUSH_BYTES = 32 * 1024
_FLUSH_ITEMS = ITEMS_PER_RECORD // 2


class _Emitting:
    """A step that emits: its attempt, whether items of it are recorded, and those not recorded yet."""

    __slots__ = ("attempt", "is_recorded", "items", "size")

    def __init__(self, attempt: int, is_recorded: bool) -> None:
        self.attempt, self.is_recorded = attempt, is_recorded
        self.items: list[bytes] = []
        self.size = 0


class OutputBuffer:
    """What the steps of one execution emit. Only on the event loop's thread."""

    def __init__(self, execution: Running) -> None:
        self._execution = execution
        self._steps = {
            step: _Emitting(attempt, stands) for step, (attempt, stands) in execution.replay.emitted.items()
        }
        self._is_set = False

    def begin(self, step: str) -> None:
        """Retract what earlier attempts of a step emitted, before the next attempt begins."""
        emitting = self._steps.get(step)
        if emitting is not None:
            self._retract(step, emitting)

    def settle(self, step: str, *, stands: bool) -> None:
        """Record what a step emitted before its result is recorded; before its failure, retract it."""
        emitting = self._steps.pop(step, None)
        if emitting is None:
            return
        if stands:
            self._flush(step, emitting)
        else:
            self._retract(step, emitting)

    def add(self, frame: Frame, data: bytes) -> asyncio.Future[Verdict] | None:
        """Add an item; return a future to wait for if the buffer is full, else None."""
        step = frame.position.id
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
