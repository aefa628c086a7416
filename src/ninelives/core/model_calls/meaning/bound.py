"""How often answers are wrong at most, by what was compared: a bound that holds whenever it is looked at.

For each error rate there is a bet that it is at least that high: a comparison that was right wins a little, a
wrong one loses much. If the rate is truly that high, no way to stop makes the stake grow twentyfold with more
than a probability of 5 %. The bound is the lowest rate whose bet has grown that much. It assumes that the
answers of a band go wrong as often from now on as they did in what was compared.
"""

from __future__ import annotations

import math
from typing import Final

_BETS: Final = ((0.0, 0.5), (0.125, 0.2), (0.25, 0.2), (0.5, 0.1))
"""On which share of the supposed error rate how much of the stake is laid."""
_STEPS: Final = 40


def upper_bound(wrong: int, compared: int, doubt: float) -> float:
    """Return the error rate that is exceeded with at most this probability (`doubt`), whenever it is asked.

    The answer is 1.0 while too little was compared.
    """
    low, high = wrong / compared if compared else 1.0, 1.0
    if low >= 1.0:
        return 1.0
    wanted = -math.log(doubt)
    for _ in range(_STEPS):
        rate = (low + high) / 2
        if _log_stake(wrong, compared, rate) >= wanted:
            high = rate
        else:
            low = rate
    return high


def is_worse(wrong: int, of: int, rate: float, doubt: float) -> bool:
    """Return whether so many wrong ones, or more, would be less likely than `doubt` at this error rate."""
    fewer = sum(math.comb(of, count) * rate**count * (1 - rate) ** (of - count) for count in range(wrong))
    return 1.0 - fewer < doubt


def _log_stake(wrong: int, compared: int, rate: float) -> float:
    """What the stake has become, as a logarithm; it grows with the supposed rate."""
    right = compared - wrong
    logs = [
        math.log(laid)
        + (wrong * math.log(share) if wrong else 0.0)
        + right * (math.log1p(-share * rate) - math.log1p(-rate))
        for share, laid in _BETS
        if share or not wrong
    ]
    most = max(logs)
    return most + math.log(sum(math.exp(one - most) for one in logs))
