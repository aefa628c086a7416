"""Intents: a body that runs longer than some milliseconds is recorded as started.

One timer serves all bodies of an event loop. A body that ends before its time never had an intent: its
outcome says all. What is in flight when we die, and had run that long, is known at the next start.
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
    """The bodies of one event loop that have started lately."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._started: deque[Frame] = deque()
        self._is_set = False
        self._context = Context()  # a timer of ours, not of the run whose body started it

    def start(self, frame: Frame) -> None:
        """Note that a body starts: it is recorded, unless its frame is over before its time."""
        frame.at = self._loop.time()
        self._started.append(frame)
        if not self._is_set:
            self._is_set = True
            self._loop.call_later(INTENT_SECONDS, self._sweep, context=self._context)

    def _sweep(self) -> None:
        now, started = self._loop.time(), self._started
        while started and (started[0].is_over or now - started[0].at >= INTENT_SECONDS):
            frame = started.popleft()
            if not frame.is_over:
                place = frame.place
                place.execution.note(Kind.INTENT, place.id, write_body(frame.asked), Facts(frame.kind))
        self._is_set = bool(started)
        if started:
            delay = started[0].at + INTENT_SECONDS - now
            self._loop.call_later(delay, self._sweep, context=self._context)
