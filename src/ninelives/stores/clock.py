"""The machine's own clock."""

from __future__ import annotations

import time
from functools import cached_property
from pathlib import Path

# The monotonic clock stops while the machine sleeps: a lease would outlive a night.
_BOOT_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class SystemClock:
    """The clock of this machine; `boot_ms` also counts time spent asleep."""

    @cached_property
    def boot_id(self) -> str:
        """Return the kernel's id of this boot."""
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()

    def now_ms(self) -> int:
        """Return the wall clock time."""
        return time.time_ns() // 1_000_000

    def boot_ms(self) -> int:
        """Return milliseconds since boot."""
        return time.clock_gettime_ns(_BOOT_CLOCK) // 1_000_000
