"""A thread that waits for the store's wake-ups and tells the event loop: nobody polls."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

from ninelives.core.errors import StoreError

T = TypeVar("T")
LISTEN_SECONDS = 1.0
"""How long one wait is; everybody looks again after it, should a wake-up have been lost."""


class Listener:
    """Listens to one kind of wake-up, from when somebody first asks until it is closed."""

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
        self._is_closing = False

    def start(self) -> None:
        """Listen from now on."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._listen, name="ninelives-listener", daemon=True)
            self._thread.start()

    async def until(self, condition: Callable[[], Awaitable[T | None]]) -> T:
        """Wait until a condition gives something; asked again whenever something may have happened."""
        self.start()
        while True:
            news: asyncio.Future[None] = self._loop.create_future()
            self._waiting.add(news)  # before we look: what happens meanwhile is not lost
            try:
                found = await condition()
                if found is not None:
                    return found
                await news
            finally:
                self._waiting.discard(news)

    def look_again(self) -> None:
        """Have everybody who waits look again. On the event loop."""
        for news in self._waiting:
            if not news.done():
                news.set_result(None)

    def close(self) -> None:
        """Stop after the present wait."""
        self._is_closing = True

    def join(self) -> None:
        """Wait for the thread, once the store is closed and sends it away."""
        if self._thread is not None:
            self._thread.join()

    def _listen(self) -> None:
        while not self._is_closing:
            try:
                woken = self._wait(LISTEN_SECONDS)
            except StoreError:
                return
            with suppress(RuntimeError):  # the loop was closed under us
                self._loop.call_soon_threadsafe(self._tell, woken)

    def _tell(self, woken: bool) -> None:
        if woken:
            self._woken()
        self.look_again()
