"""Durations as people write them: 500ms, 90s, 15m, 12h, 30d; up to a hundred years."""

from __future__ import annotations

import re

_WRITTEN = re.compile(r"(\d{1,9})(ms|[smhd])", re.ASCII)
_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


LONGEST_MS = 100 * 366 * 86_400_000
"""A moment so far from now is still one that a calendar has."""


def duration_ms(text: str, *, least_unit: str = "s") -> int | None:
    """Return a duration in milliseconds; None for any other text, or for one too small or too long."""
    found = _WRITTEN.fullmatch(text)
    if found is None or _UNITS_MS[found[2]] < _UNITS_MS[least_unit]:
        return None
    given_ms = int(found[1]) * _UNITS_MS[found[2]]
    return given_ms if given_ms <= LONGEST_MS else None
