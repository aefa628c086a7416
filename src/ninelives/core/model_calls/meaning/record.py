"""What was compared so far: per cached question, and per band of risk over all of them. Pure sums.

A comparison is stored when the model was asked although a cached answer was near. The order in which the
comparisons of several processes arrive changes no sum, until there are more than the newest `WINDOW`. It does
change which ones are the latest: those say whether answers have become worse.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from msgspec import Struct

from ninelives.core.model_calls.meaning.bound import is_worse, upper_bound

BANDS: Final = (0.03, 0.06, 0.12, 0.24)
"""Up to which risk each band goes. A riskier answer is never served, only compared."""
WINDOW: Final = 4_000
"""How many of the newest comparisons count."""
OWN_AT_MOST: Final = 64
"""How many of its newest comparisons count for one cached question."""
LATELY: Final = 50
"""So many of a band's newest comparisons say whether its answers have become worse."""
DOUBT: Final = 0.05
"""With which probability any of the bands' bounds may be too low."""
_ALARM: Final = 0.01
_REACH: Final = 0.1
"""How far in similarity a comparison speaks for what lies on its weaker side."""


class Comparison(Struct, frozen=True, array_like=True):
    """A cached answer beside what the model said. `band` is the risk's as it was before; -1: none."""

    entry: str
    similarity: float
    band: int
    right: bool


class RiskBound(Struct, frozen=True):
    """What is known of one band: how many were compared and wrong, lately too, and how many may be wrong."""

    up_to: float
    compared: int
    wrong: int
    at_most: float
    lately: tuple[int, int] = (0, 0)

    def permits(self, max_error: float) -> bool:
        """Return whether answers of this band may be served."""
        wrong, of = self.lately
        return self.at_most <= max_error and not is_worse(wrong, of, max_error, _ALARM)


class Comparisons:
    """All comparisons that count, in memory. Not for several threads at a time."""

    def __init__(self) -> None:
        self._newest: deque[Comparison] = deque()
        self._own: dict[str, deque[Comparison]] = {}
        self._sums = [[0, 0] for _ in BANDS]
        self._lately = [deque[bool](maxlen=LATELY) for _ in BANDS]
        self._bounds: dict[int, float] = {}

    def __len__(self) -> int:
        return len(self._newest)

    def note(self, comparison: Comparison) -> None:
        """Add a comparison; the oldest one goes when there are too many."""
        self._newest.append(comparison)
        own = self._own.setdefault(comparison.entry, deque(maxlen=OWN_AT_MOST))
        own.append(comparison)
        self._count(comparison, 1)
        if 0 <= comparison.band < len(BANDS):
            self._lately[comparison.band].append(not comparison.right)
        if len(self._newest) > WINDOW:
            self._count(self._newest.popleft(), -1)

    def forget(self, entry: str) -> None:
        """Drop what is known of one cached question: it is gone. The bands keep their sums."""
        self._own.pop(entry, None)

    def bound(self, band: int) -> RiskBound:
        """Return what is known of a band."""
        compared, wrong = self._sums[band]
        at_most = self._bounds.get(band)
        if at_most is None:
            at_most = self._bounds[band] = upper_bound(wrong, compared, DOUBT / len(BANDS))
        lately = self._lately[band]
        return RiskBound(BANDS[band], compared, wrong, at_most, (sum(lately), len(lately)))

    def risk(self, entry: str, similarity: float) -> float:
        """Return how risky this cached answer looks at this similarity: 0 is best, 1 is worst.

        It begins as the distance. What the question's own comparisons showed pulls it down or up: those that
        were right no nearer than this, and those that were wrong no farther, count in full. It is no
        probability: how often answers of such a risk are wrong is what the bands measure.
        """
        wrong, seen = 1.0 - similarity, 1.0
        for one in self._own.get(entry, ()):
            ahead = one.similarity - similarity if one.right else similarity - one.similarity
            weight = max(0.0, 1.0 - max(0.0, ahead) / _REACH)
            seen += weight
            wrong += 0.0 if one.right else weight * 2
        return min(1.0, wrong / seen)

    def _count(self, comparison: Comparison, by: int) -> None:
        if 0 <= comparison.band < len(BANDS):
            sums = self._sums[comparison.band]
            sums[0] += by
            sums[1] += 0 if comparison.right else by
            self._bounds.pop(comparison.band, None)


def band_of(risk: float) -> int:
    """Return the band of a risk; -1 if it is too high for each of them."""
    return next((at for at, up_to in enumerate(BANDS) if risk <= up_to), -1)
