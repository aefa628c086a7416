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


def witness(clock: Clock) -> tuple[str, int]:
    """Return what bears out how much time has passed, whoever sets the wall clock: the boot, and its clock.

    A clock that is moved by hand says itself what bears it out.
    """
    own = getattr(clock, "witness", None)
    return own() if own is not None else (clock.boot_id, clock.boot_ms())
