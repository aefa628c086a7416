"""Circuit breakers: when the failures of a step stop its calls for a while. Pure: states in, states out.

closed: calls pass, and recent failures are kept. open: calls wait until `until_ms`. half: one process may try
one call until `until_ms`; its success closes the breaker, its failure opens it again. If the process dies,
another one may try once that time is over.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from ninelives.core.durations import duration_ms
from ninelives.core.errors import UsageError

_FACTOR = re.compile(r"(\d{1,4}(?:\.\d{1,3})?)x", re.ASCII)
FAILURES_AT_MOST, SLOW_AT_MOST = 1_000, 1_000


class Breaker(Struct, frozen=True, kw_only=True):
    """After `failures` failures `within` a time, calls of a step wait as long as `open` says; then one tries.

    It holds for all workers of a store; no call fails by it.

    Of a step with alternatives the same numbers also hold for each way to ask, in each process: after that
    many failures the next way is asked instead, for as long as `open` says; then one call tries again. With
    `slow`, such as "8x", answers that take that many times as long as usual count as well. The store's
    breaker then counts only calls that no way has answered.
    """

    failures: int = 5
    within: str = "1m"
    open: str = "30s"
    slow: str | None = None

    def __post_init__(self) -> None:
        if type(self.failures) is not int or not 1 <= self.failures <= FAILURES_AT_MOST:
            raise UsageError(
                f"a breaker's failures={self.failures!r}", remedy=f"Give a number, 1 to {FAILURES_AT_MOST:,}"
            )
        _ = self.within_ms, self.open_ms, self.slow_factor

    @property
    def within_ms(self) -> int:
        """The window in which failures are counted."""
        return span_ms("a breaker's within", self.within)

    @property
    def open_ms(self) -> int:
        """How long calls wait before one is tried."""
        return span_ms("a breaker's open", self.open)

    @property
    def slow_factor(self) -> float | None:
        """How many times the usual latency counts as slow; None if no latency does."""
        if self.slow is None:
            return None
        given: object = self.slow
        found = _FACTOR.fullmatch(given) if isinstance(given, str) else None
        if found is None or not 1 < float(found[1]) <= SLOW_AT_MOST:
            raise UsageError(
                f"a breaker's slow={self.slow!r}", remedy=f"Write it as '8x': above 1, up to {SLOW_AT_MOST}"
            )
        return float(found[1])


class BreakerState(Struct, frozen=True, omit_defaults=True):
    """The body of a breaker's document. `by` is the process that may try a call.

    `opened` is how often it opened. `mark` is different in each write: two equal ones are not taken for one.
    """

    state: Literal["closed", "open", "half"] = "closed"
    failed_ms: tuple[int, ...] = ()
    until_ms: int = 0
    by: str = ""
    opened: int = 0
    error: str = ""
    mark: str = ""


def span_ms(what: str, text: object) -> int:
    """Return a time span such as 30s, 1m, 2h in milliseconds. Raises UsageError."""
    found = duration_ms(text) if isinstance(text, str) else None
    if not found:
        raise UsageError(f"{what} is {text!r}", remedy="Write it as 30s, 5m or 2h")
    return found


def failed(
    state: BreakerState, rule: Breaker, times_ms: Iterable[int], now_ms: int, error: str
) -> BreakerState:
    """Return the state after failures at some times; late failures of an open breaker change nothing."""
    if state.state != "closed":
        return state
    kept = sorted(one for one in (*state.failed_ms, *times_ms) if one > now_ms - rule.within_ms)
    if len(kept) >= rule.failures:
        return _opened(state, rule, now_ms, error)
    return replace(state, failed_ms=tuple(kept), error=error)


def claimed(state: BreakerState, rule: Breaker, by: str, now_ms: int) -> BreakerState:
    """Return the state in which a process may try one call; the same state if it may not."""
    if state.state == "closed" or state.until_ms > now_ms:
        return state
    return replace(state, state="half", by=by, until_ms=now_ms + rule.open_ms)


def tried(state: BreakerState, rule: Breaker, by: str, now_ms: int, error: str | None) -> BreakerState:
    """Return the state after the call that a process tried; the same state if it was no longer its turn."""
    if state.state != "half" or state.by != by:
        return state
    return BreakerState(opened=state.opened) if error is None else _opened(state, rule, now_ms, error)


def _opened(state: BreakerState, rule: Breaker, now_ms: int, error: str) -> BreakerState:
    return BreakerState("open", until_ms=now_ms + rule.open_ms, opened=state.opened + 1, error=error)
