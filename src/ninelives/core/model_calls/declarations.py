"""What a step declares of its model calls: when a second request is sent, and which answers are reused."""

from __future__ import annotations

import math
import re
from datetime import timedelta
from typing import TYPE_CHECKING

from msgspec import Struct

from ninelives.core.errors import UsageError

if TYPE_CHECKING:
    from ninelives.core.model_calls.meaning.choice import Meaning

MOST_WAYS = 5
EXACT, WORDS, MEANING = "exact", "words", "meaning"
"""How an answer was found, and what `near=` may be, beside a measure of meaning."""
NEAR = (EXACT, WORDS)
_PERCENTILE = re.compile(r"p(\d{2}(?:\.\d+)?)", re.ASCII)


class Hedge(Struct, frozen=True, kw_only=True):
    """Send a request again, or to an alternative, when its answer takes long; the first answer counts.

    - `after`: "p95" is how long 95 % of the latest 500 answers of this way took, known from 50 answers on;
      before, nothing is hedged. Or seconds.
    - `most`: how many requests of one call may be under way at once.
    - `budget`: how many more requests may be sent, as a share: 0.05 is 5 %. It holds whatever the latencies
      are, so nothing is hedged for long when all answers are slow; `nl.Breaker(slow=...)` is for that.
    """

    after: str | float = "p95"
    most: int = 2
    budget: float = 0.05

    def __post_init__(self) -> None:
        _ = self.percentile
        if type(self.most) is not int or not 2 <= self.most <= MOST_WAYS:
            raise UsageError(f"a hedge's most={self.most!r}", remedy=f"Give a number, 2 to {MOST_WAYS}")
        if not is_number(self.budget) or not 0 < self.budget <= 1:
            raise UsageError(
                f"a hedge's budget={self.budget!r}", remedy="Give a share above 0, up to 1: 0.05 is 5 %"
            )

    @property
    def percentile(self) -> float | None:
        """The percentile after which a request is sent again, 0 to 1; None if `after` is in seconds."""
        if is_number(self.after):
            if not 0 < float(self.after) < math.inf:
                raise UsageError(f"a hedge's after={self.after!r}", remedy="Give seconds above 0, or 'p95'")
            return None
        found = _PERCENTILE.fullmatch(self.after) if isinstance(self.after, str) else None
        if found is None or not 50 <= float(found[1]) < 100:
            raise UsageError(f"a hedge's after={self.after!r}", remedy="Give 'p50' to 'p99.9', or seconds")
        return float(found[1]) / 100


class Cache(Struct, frozen=True, kw_only=True):
    """Reuse the answer that an earlier call of the step recorded, in any run of the store.

    - `ttl`: for how long, in seconds or as a timedelta.
    - `scope`: labels that both runs must have with the same value, such as ("tenant",); a call of a run
      without one of them is not cached.
    - `near`: which questions count as the same. "exact": all arguments that count are equal. "words": they
      differ only in spaces, courtesies, the first capital and the mark at the end. `nl.Meaning(...)`: those,
      and questions that mean the same, once it is measured how often that errs.
    - `version`: part of the name; a new one makes all earlier answers misses.
    - `leads_to_effects`: must be given for every `near` but "exact", and for no other: may a run act on an
      answer that was given to another wording? False: it is refused actions that change the world. True:
      they are permitted, and each approval names the answer.
    """

    ttl: float | timedelta
    scope: tuple[str, ...] = ()
    near: str | Meaning = "exact"
    version: str = ""
    leads_to_effects: bool | None = None

    def __post_init__(self) -> None:
        seconds = self.ttl.total_seconds() if isinstance(self.ttl, timedelta) else self.ttl
        if not is_number(seconds) or not 0 < seconds < 1e11:
            raise UsageError(f"a cache's ttl={self.ttl!r}", remedy="Give seconds above 0, or a timedelta")
        scope: object = self.scope
        if not isinstance(scope, tuple) or not all(isinstance(one, str) and one for one in scope):
            raise UsageError(f"a cache's scope={self.scope!r}", remedy='Give names of labels: ("tenant",)')
        if not isinstance(self.version, str):
            raise UsageError(f"a cache's version={self.version!r}", remedy="Give a text")
        if self.meaning is None and self.near not in NEAR:
            raise UsageError(
                f"a cache's near={self.near!r}", remedy=f"It is one of {', '.join(NEAR)}, or nl.Meaning(...)"
            )
        if self.near == EXACT and self.leads_to_effects is not None:
            raise UsageError(
                "a cache's leads_to_effects= is for answers to other wordings, and near is 'exact'",
                remedy="Leave it out",
            )
        if self.near != EXACT and type(self.leads_to_effects) is not bool:
            raise UsageError(
                f"a cache with near={self.near_name!r} must say whether its answers lead to effects",
                remedy="Give leads_to_effects=False, and runs that use one are refused actions that change "
                "the world; or True if such answers are good enough to act on",
            )

    @property
    def meaning(self) -> Meaning | None:
        """How questions are compared by meaning; None if they are not."""
        near: object = self.near
        if isinstance(near, str):
            return None
        # Lazily: no other process pays for the guards' lists of words.
        from ninelives.core.model_calls.meaning.choice import Meaning

        return near if isinstance(near, Meaning) else None

    @property
    def near_name(self) -> str:
        """What `near` is, in a word."""
        return self.near if isinstance(self.near, str) else MEANING

    @property
    def ttl_ms(self) -> int:
        """For how long an answer may be reused."""
        seconds = self.ttl.total_seconds() if isinstance(self.ttl, timedelta) else self.ttl
        return int(seconds * 1000)


def is_number(value: object) -> bool:
    """Return whether a value is a number, and no bool."""
    return isinstance(value, int | float) and not isinstance(value, bool)
