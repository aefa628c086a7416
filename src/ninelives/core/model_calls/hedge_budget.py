"""How many more requests hedging may send: a share of the calls, whatever the latencies are. Pure.

Each call adds the share, and a second request costs one. A budget holds at most `HELD_AT_MOST`, so after a
long quiet time only that many are sent at once. It begins empty and is never negative: at any moment, the
second requests of a process are at most that share of its calls.
"""

from __future__ import annotations

HELD_AT_MOST = 10
_ONE = 1_000_000
"""A request, in millionths: sums of whole numbers are exact."""


class HedgeBudget:
    """What one step may still send in this process."""

    __slots__ = ("_held", "_share")

    def __init__(self, share: float) -> None:
        self._share, self._held = int(share * _ONE), 0

    def called(self) -> None:
        """Count a call."""
        self._held = min(self._held + self._share, HELD_AT_MOST * _ONE)

    def take(self) -> bool:
        """Return whether one more request may be sent, and count it if so."""
        if self._held < _ONE:
            return False
        self._held -= _ONE
        return True
