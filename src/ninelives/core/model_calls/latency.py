"""How long the latest answers of one way took. Pure: seconds in, a percentile out."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque

LATEST = 500
ENOUGH = 50
"""From how many answers on a percentile says something."""


class Latencies:
    """The latest answers of a way, in order of arrival and in order of size."""

    __slots__ = ("_latest", "_sorted")

    def __init__(self) -> None:
        self._latest: deque[float] = deque()
        self._sorted: list[float] = []

    def __len__(self) -> int:
        return len(self._latest)

    def add(self, seconds: float) -> None:
        """Add an answer; the oldest one is forgotten."""
        if len(self._latest) == LATEST:
            del self._sorted[bisect_left(self._sorted, self._latest.popleft())]
        self._latest.append(seconds)
        insort(self._sorted, seconds)

    def at(self, share: float) -> float | None:
        """Return how long that share of the answers took at most; None while too few are known."""
        known = len(self._sorted)
        return self._sorted[min(known - 1, int(known * share))] if known >= ENOUGH else None
