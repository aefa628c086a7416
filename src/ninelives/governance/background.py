"""One thread of a governor for its store calls: what it counts, and what it reads again.

Calls of steps never wait for it. If we die here, what was not yet written is not counted.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from queue import SimpleQueue

from ninelives.core.errors import StoreUnavailable

LOGGER = logging.getLogger("ninelives")
_PAUSE_SECONDS = 0.5


class Background:
    """Does pieces of work one after the other, each again while the store is away."""

    def __init__(self) -> None:
        self._work: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def do(self, work: Callable[[], None]) -> None:
        """Do a piece of work soon."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._always, name="ninelives-governor", daemon=True)
            self._thread.start()
        self._work.put(work)

    def close(self) -> None:
        """Finish what is under way, and stop."""
        self._closing.set()
        if self._thread is not None:
            self._work.put(None)
            self._thread.join()

    def _always(self) -> None:
        while (work := self._work.get()) is not None:
            try:
                self._insist(work)
            except Exception:
                LOGGER.exception("what governs runs could not be written or read")

    def _insist(self, work: Callable[[], None]) -> None:
        while not self._closing.is_set():
            try:
                return work()
            except StoreUnavailable:
                self._closing.wait(_PAUSE_SECONDS)
        return None
