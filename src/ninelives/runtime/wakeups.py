"""A thread that waits for the store's wake-ups and notifies the event loop.

If a wake-up is lost, all conditions are checked at the end of the wait, a second later at most.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")
LOGGER = logging.getLogger("ninelives")
LISTEN_SECONDS = 1.0
"""How long one wait lasts, and the pause after one that failed. All conditions are checked after it, in case
a wake-up was lost."""


class Listener:
    """Listens to one kind of wake-up, from the first `until` or `start` until `close`."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        wait: Callable[[float], bool],
        *,
        woken: Callable[[], None] = lambda: None,
    ) -> None:
        self._loop, self._wait, self._woken = loop, wait, woken
        self._waiting: set[asyncio.Future[None]] = set()
        self._thread: threading.Thread | None = None
        self._closing = threading.Event()

    def start(self) -> None:
        """Start the thread, if it does not run yet."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._listen, name="ninelives-listener", daemon=True)
            self._thread.start()

    async def until(self, condition: Callable[[], Awaitable[T | None]]) -> T:
        """Return the first result of `condition` that is not None; checked again at every wake-up."""
        self.start()
        while True:
            news: asyncio.Future[None] = self._loop.create_future()
            self._waiting.add(news)  # before the check: a wake-up during it is not lost
            try:
                found = await condition()
                if found is not None:
                    return found
                await news
            finally:
                self._waiting.discard(news)

    def check_all(self) -> None:
        """Make every `until` check its condition again. Call it on the event loop."""
        for news in self._waiting:
            if not news.done():
                news.set_result(None)

    def close(self) -> None:
        """Stop the thread after its current wait."""
        self._closing.set()

    def join(self) -> None:
        """Join the thread. Call it after closing the store, which ends the current wait."""
        if self._thread is not None:
            self._thread.join()

    def _listen(self) -> None:
        while not self._closing.is_set():
            try:
                woken = self._wait(LISTEN_SECONDS)
            except Exception as error:  # noqa: BLE001 (no other thread makes `until` check again)
                if self._closing.wait(LISTEN_SECONDS):
                    return
                LOGGER.warning("waiting for wake-ups failed, all that waits is checked: %r", error)
                woken = True  # a store that is broken raises that in the conditions themselves
            with suppress(RuntimeError):  # the loop was closed meanwhile
                self._loop.call_soon_threadsafe(self._notify, woken)

    def _notify(self, woken: bool) -> None:
        # A wait that only timed out needs no read of the news: workers poll for lost wake-ups themselves.
        if woken:
            self._woken()
        self.check_all()
