"""Intents: a body that runs longer than some milliseconds is recorded as started.

One timer serves all bodies of an event loop. A body that ends before its time never had an intent: its
outcome says all. What is in flight when we die, and had run that long, is known at the next start.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

INTENT_SECONDS = 0.004
"""How long a body may run before its start is recorded; with the timer's own delay, at most 5 ms."""


class Started:
    """A body that has started; `is_over` once its outcome is known."""

    __slots__ = ("at", "is_over", "write")

    def __init__(self, at: float, write: Callable[[], None]) -> None:
        self.at, self.write, self.is_over = at, write, False


class Intents:
    """The bodies of one event loop that have started lately."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._started: deque[Started] = deque()
        self._is_set = False

    def start(self, write: Callable[[], None]) -> Started:
        """Note that a body starts; `write` records it, if it takes long enough."""
        started = Started(self._loop.time(), write)
        self._started.append(started)
        if not self._is_set:
            self._is_set = True
            self._loop.call_later(INTENT_SECONDS, self._sweep)
        return started

    def _sweep(self) -> None:
        now = self._loop.time()
        while self._started and (self._started[0].is_over or now - self._started[0].at >= INTENT_SECONDS):
            started = self._started.popleft()
            if not started.is_over:
                started.write()
        self._is_set = bool(self._started)
        if self._started:
            self._loop.call_later(self._started[0].at + INTENT_SECONDS - now, self._sweep)
