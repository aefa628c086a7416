"""The clock seam. Everything that needs the time gets one of these; nothing else reads a clock.

Two clocks, because they answer different questions: `now_ms` is the wall clock (timers, what people
read) and may jump; `boot_ms` counts since boot, suspended time included, and never jumps, but means
nothing after a reboot: compare it only under an equal `boot_id`.
"""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    """The time, from wherever it is taken."""

    @property
    def boot_id(self) -> str:
        """Name this boot of this machine."""

    def now_ms(self) -> int:
        """Return the wall clock, in milliseconds since 1970."""

    def boot_ms(self) -> int:
        """Return milliseconds since boot."""
