"""A server's wall clock, known here without asking: our boot clock plus a learnt difference.

A process that holds a session renews it several times per lease, in a thread of its own. Each renewal returns
the server's time, so nothing that waits has to ask for it on an event loop.

The error is bounded. The server read its clock between our sending and our receiving, so the true difference
lies between two bounds, at most one round trip apart. A new reading moves the known difference only as far as
its bounds demand: the clock goes backwards only if the server's does. In between, time passes by our boot
clock, which cannot be set. If the server's clock is set, we learn it with the next reading. Old readings
expire. Leases never depend on this clock: see `sessions`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

KNOWN_MS = 60_000
"""How long a reading counts, at least: a lease's length, if that is longer."""


class ServerClock:
    """The server's time, as learnt from its answers; nothing is learnt without our boot clock, `boot_ms`."""

    def __init__(self, boot_ms: Callable[[], int] | None) -> None:
        self._boot_ms = boot_ms
        self._ahead_ms: int | None = None
        self._until_ms = 0
        self._lock = threading.Lock()

    def learn(self, server_ms: int, sent_ms: int, known_ms: int = KNOWN_MS) -> None:
        """Learn the server's time from an answer that came just now to what was sent at `sent_ms`."""
        if self._boot_ms is None:
            return
        with self._lock:
            least_ms, most_ms = server_ms - self._boot_ms(), server_ms - sent_ms
            ahead_ms = least_ms if self._ahead_ms is None else self._ahead_ms
            self._ahead_ms = min(max(ahead_ms, least_ms), most_ms)
            self._until_ms = sent_ms + max(known_ms, KNOWN_MS)

    def now_ms(self) -> int | None:
        """Return the server's time; None when it has not been learnt lately."""
        if self._boot_ms is None or self._ahead_ms is None:
            return None
        now_ms = self._boot_ms()
        return now_ms + self._ahead_ms if now_ms < self._until_ms else None

    def read(self, ask: Callable[[], int]) -> int:
        """Ask the server for its time, and learn it. Raises what `ask` raises."""
        sent_ms = self._boot_ms() if self._boot_ms is not None else 0
        now_ms = ask()
        self.learn(now_ms, sent_ms)
        return now_ms
