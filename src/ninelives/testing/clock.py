"""A clock for tests that stands still until it is moved.

Runs, their store and their event loop all use it as wall clock, so they agree on the time. Leases use the
machine's boot clock, which is never skipped: no session expires by a skip.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from ninelives.core.clock import moment
from ninelives.core.errors import UsageError
from ninelives.stores.clock import SystemClock

START = datetime(2026, 1, 1, tzinfo=UTC)
"""The default start time of a clock."""


class SkippingClock:
    """A clock that moves only by skips."""

    def __init__(self, start: datetime = START) -> None:
        if start.tzinfo is None:
            raise UsageError(f"{start!r} has no time zone", remedy="Give a datetime with a time zone")
        self._start_ms = round(start.timestamp() * 1000)
        self._passed_seconds = 0.0
        self._machine = SystemClock()

    @property
    def boot_id(self) -> str:
        """The id of this boot of the machine."""
        return self._machine.boot_id

    def boot_ms(self) -> int:
        """Return the machine's milliseconds since boot."""
        return self._machine.boot_ms()

    def now_ms(self) -> int:
        """Return the time, in milliseconds since 1970."""
        return self._start_ms + int(self._passed_seconds * 1000 + 1e-3)

    def boot_reading(self) -> tuple[str, int]:
        """Confirm skipped time to code that does not trust a wall clock alone: it could have been set."""
        return f"skipping since {self._start_ms}", self.now_ms()

    def now(self) -> datetime:
        """Return the time."""
        return moment(self.now_ms())

    @property
    def passed_seconds(self) -> float:
        """Seconds since the start: the time of the event loop."""
        return self._passed_seconds

    def skip(self, time: float | timedelta) -> None:
        """Let time pass, in seconds or as a timedelta. Raises UsageError for a negative or infinite time."""
        seconds = time.total_seconds() if isinstance(time, timedelta) else time
        if not 0 <= seconds < float("inf"):
            raise UsageError(f"{time!r} cannot be skipped", remedy="Give a time of 0 or more")
        self._passed_seconds += seconds

    def skip_to_ms(self, moment_ms: int) -> None:
        """Let time pass until a moment; does nothing if it is in the past."""
        self._passed_seconds = max(self._passed_seconds, (moment_ms - self._start_ms) / 1000)
