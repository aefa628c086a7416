"""Windows: the minutes, hours, days and months of a budget, in UTC by the store's clock.

A window's name is part of its account's name, so no job has to reset anything: a new window is a new account.
When the clock is turned back, the earlier account is charged again, with all that was spent in it.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from ninelives.core.clock import moment

NONE, MINUTE, HOUR, DAY, MONTH = PERIODS = ("none", "minute", "hour", "day", "month")
WITHOUT_END = "all"
"""The name of the only window of a budget without windows."""
_FORMATS = {MINUTE: "%Y-%m-%dT%H:%M", HOUR: "%Y-%m-%dT%H", DAY: "%Y-%m-%d", MONTH: "%Y-%m"}
_LENGTHS = {MINUTE: timedelta(minutes=1), HOUR: timedelta(hours=1), DAY: timedelta(days=1)}


def window_at(per: str, now_ms: int) -> str:
    """Return the name of the window that a moment falls into."""
    if per == NONE:
        return WITHOUT_END
    return moment(now_ms).strftime(_FORMATS[per])


def end_ms(window: str) -> int | None:
    """Return when a window is over; None if it never is. Raises ValueError for a name that is none."""
    if window == WITHOUT_END:
        return None
    for per, form in _FORMATS.items():
        try:
            begin = datetime.strptime(window, form).replace(tzinfo=UTC)
        except ValueError:
            continue
        if begin.strftime(form) != window:
            continue
        if per == MONTH:
            begin, length = begin.replace(day=1), timedelta(days=31)
            end = (begin + length).replace(day=1)
        else:
            end = begin + _LENGTHS[per]
        return int(end.timestamp() * 1000)
    raise ValueError(f"{window!r} is no window")
