"""A clock that stands still until a test moves it."""

from __future__ import annotations

START_MS = 1_700_000_000_000


class SteppingClock:
    """The clock seam, by hand."""

    def __init__(self, now_ms: int = START_MS, boot_ms: int = 1_000_000) -> None:
        self._now_ms, self._boot_ms = now_ms, boot_ms

    @property
    def boot_id(self) -> str:
        """Name the one boot there is."""
        return "00000000-0000-4000-8000-000000000001"

    def now_ms(self) -> int:
        """Return the wall clock."""
        return self._now_ms

    def boot_ms(self) -> int:
        """Return milliseconds since boot."""
        return self._boot_ms

    def advance(self, ms: int) -> None:
        """Let time pass."""
        self._now_ms += ms
        self._boot_ms += ms

    def jump(self, ms: int) -> None:
        """Set the wall clock forward or back; no time passes."""
        self._now_ms += ms
