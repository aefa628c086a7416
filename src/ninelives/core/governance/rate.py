"""Rates of a provider: how many requests and tokens it takes in a minute. Pure: states in, states out.

A bucket for all workers of a store. It fills at a constant rate and holds a twelfth of a minute's amount; so
no 60 seconds have more than the limit. `until_ms`: the provider asked to be left alone so long.
"""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from ninelives.core.errors import BadName, UsageError
from ninelives.core.ids import check_id
from ninelives.core.values.retry import MAX_RETRY_AFTER_SECONDS

_MINUTE_MS = 60_000
_SHARE = 12
"""Which part of a minute's amount may be taken at once."""
MOST_PAUSE_MS = int(MAX_RETRY_AFTER_SECONDS * 1000)
"""How long a provider may ask to be left alone: as long as a retry waits at most."""
_SKEW_MS, _DEBT_MINUTES = 300_000, 60


class Limit(Struct, frozen=True, kw_only=True):
    """How much a provider takes: requests and tokens a minute. Steps with one `key` share it, in all workers.

    Without a `key` the step's name is its key. In any case a provider's Retry-After holds for all of them.
    """

    per_minute: int | None = None
    tokens_per_minute: int | None = None
    key: str | None = None

    def __post_init__(self) -> None:
        for name in ("per_minute", "tokens_per_minute"):
            given = getattr(self, name)
            if given is not None and (type(given) is not int or not 1 <= given < 2**53):
                raise UsageError(f"nl.Limit({name}={given!r})", remedy="Give a whole number, 1 or more")
        if self.key is not None:
            try:
                check_id(self.key, "limit's key")
            except BadName as error:
                raise UsageError(
                    f"nl.Limit(key={self.key!r})", remedy="Give a short name, such as 'openai'"
                ) from error

    def amount(self, meter: str) -> int | None:
        """Return how much of a meter there is in a minute; None if it is not limited."""
        return self.per_minute if meter == REQUESTS else self.tokens_per_minute


REQUESTS, TOKENS = METERS = ("requests", "tokens")


class RateState(Struct, frozen=True, omit_defaults=True):
    """The body of a rate's document: what is left of each meter, in thousandths, as of `at_ms`.

    What was used beyond what was left is a debt, below 0. `mark` is different in each write.
    """

    at_ms: int = 0
    left: dict[str, int] = {}
    until_ms: int = 0
    error: str = ""
    mark: str = ""


def room(limit: int) -> int:
    """Return how much can be taken at once."""
    return max(1, limit // _SHARE)


def plausible(state: RateState, now_ms: int) -> RateState:
    """Return the state without what a wrong clock or a damaged document says of the future.

    Else all calls would be held until that time comes.
    """
    if state.until_ms > now_ms + MOST_PAUSE_MS:
        state = replace(state, until_ms=0, error="")
    return replace(state, at_ms=now_ms) if state.at_ms > now_ms + _SKEW_MS else state


def filled(state: RateState, limit: Limit, now_ms: int) -> RateState:
    """Return the state at a later time. A clock that went back fills nothing."""
    left: dict[str, int] = {}
    for meter in METERS:
        amount = limit.amount(meter)
        if amount is None:
            continue
        most = room(amount) * 1000
        had = max(state.left.get(meter, most), _most_debt(amount))
        gained = max(0, now_ms - state.at_ms) * _per_minute(amount) * 1000 // _MINUTE_MS if state.at_ms else 0
        left[meter] = min(most, had + gained)
    return replace(state, at_ms=max(now_ms, state.at_ms), left=left)


def taken(
    state: RateState, limit: Limit, now_ms: int, wanted: dict[str, int], least: dict[str, int]
) -> tuple[RateState, dict[str, int]]:
    """Take what is wanted as far as it is there; nothing if there is less than the `least` of a meter.

    One call may need more tokens than can be taken at once: it gets all that there is when the bucket is
    full, and the rest is a debt.
    """
    now = filled(state, limit, now_ms)
    got: dict[str, int] = {}
    for meter, left in now.left.items():
        most = room(limit.amount(meter) or 0)
        needed = max(least.get(meter, 0), 0)
        there = left // 1000
        if there < min(needed, most):
            return now, {}
        got[meter] = max(min(wanted.get(meter, 0), there), needed)
    rest = {
        meter: max(left - got.get(meter, 0) * 1000, _most_debt(limit.amount(meter) or 1))
        for meter, left in now.left.items()
    }
    return replace(now, left=rest), got


def due_ms(state: RateState, limit: Limit, least: dict[str, int]) -> int:
    """Return when there will be enough for a call that needs this."""
    due = state.at_ms
    for meter, left in state.left.items():
        amount = limit.amount(meter) or 1
        missing = min(max(least.get(meter, 0), 1), room(amount)) * 1000 - left
        if missing > 0:
            due = max(due, state.at_ms + missing * _MINUTE_MS // (_per_minute(amount) * 1000) + 1)
    return due


def paused(state: RateState, until_ms: int, error: str) -> RateState:
    """Return the state after the provider asked to be left alone; an earlier end changes nothing."""
    return replace(state, until_ms=until_ms, error=error) if until_ms > state.until_ms else state


def _most_debt(amount: int) -> int:
    """Return the lowest that a meter goes: no answer keeps all others waiting for longer than an hour."""
    return -amount * 1000 * _DEBT_MINUTES


def _per_minute(amount: int) -> int:
    """Return how much is gained in a minute: with a full bucket before it, it is the limit."""
    return max(1, amount - room(amount))
