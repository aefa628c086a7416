"""Intents of resumable steps: a body that runs longer than some milliseconds is recorded as started.

One timer serves all bodies of an event loop. A body that ends sooner gets no intent: its outcome says enough.
If we die, the next worker knows of every body in flight that had run that long.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextvars import Context

from ninelives.core.journal.replay import write_body
from ninelives.core.model.run import Kind
from ninelives.core.model.totals import Facts
from ninelives.engine.context import Frame

INTENT_SECONDS = 0.004
"""How long a body may run before its start is recorded; with the timer's own delay, at most 5 ms."""


class Intents:
    """The recently started bodies of one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._started: deque[Frame] = deque()
        self._is_set = False
        self._context = Context()  # the timer is ours and must not count as one of the run's

    def start(self, frame: Frame) -> None:
        """Note that a body starts; its intent is recorded unless it ends within INTENT_SECONDS."""
        frame.at = self._loop.time()
        self._started.append(frame)
        if not self._is_set:
            self._is_set = True
            self._loop.call_later(INTENT_SECONDS, self._sweep, context=self._context)

    def _sweep(self) -> None:
        now, started = self._loop.time(), self._started
        # In order of their start: the first body that is young enough ends the search.
        while started and (started[0].is_over or now - started[0].at >= INTENT_SECONDS):
            frame = started.popleft()
            if not frame.is_over:
                position = frame.position
                # Not awaited: these bodies may be repeated, so the intent only informs and holds up nothing.
                body = write_body(frame.fingerprint, judged=frame.judged)
                position.execution.note(Kind.INTENT, position.id, body, Facts(frame.kind))
        self._is_set = bool(started)
        if started:
            delay = started[0].at + INTENT_SECONDS - now
            self._loop.call_later(delay, self._sweep, context=self._context)
