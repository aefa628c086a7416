"""The clock protocol. Everything that needs the time gets a `Clock`; nothing else reads a clock.

There are two clocks: `now_ms` is the wall clock (for timers and for people) and may jump; `boot_ms` counts
since boot, suspended time included, and never jumps, but means nothing after a reboot: compare it only under
an equal `boot_id`.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Protocol

_LAST_MS = 253_402_300_799_000
"""The last second that a datetime has. A command must be able to show any number that a store holds."""


class Clock(Protocol):
    """A source of the time."""

    @property
    def boot_id(self) -> str:
        """The id of this machine's current boot."""

    def now_ms(self) -> int:
        """Return the wall clock, in milliseconds since 1970."""

    def boot_ms(self) -> int:
        """Return milliseconds since boot."""


def boot_reading(clock: Clock) -> tuple[str, int]:
    """Return the boot id and the boot clock, which measure elapsed time however the wall clock is set.

    A clock for tests that is moved by hand may provide its own `boot_reading`.
    """
    own = getattr(clock, "boot_reading", None)
    return own() if own is not None else (clock.boot_id, clock.boot_ms())


def moment(ms: int) -> datetime:
    """Return a reading of a wall clock as a datetime, in UTC; one after the year 9999 as its last second."""
    return datetime.fromtimestamp(min(ms, _LAST_MS) / 1000, UTC)


def moment_text(ms: int) -> str:
    """Return a reading of a wall clock as text in UTC, to the millisecond. Signed texts contain it."""
    return moment(ms).isoformat(timespec="milliseconds")
