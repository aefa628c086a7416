"""The bound on wrong answers: what it is at given counts, and that it holds whenever it is looked at."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ninelives.core.model_calls.meaning.bound import upper_bound


def test_nothing_compared_bounds_nothing() -> None:
    assert upper_bound(0, 0, 0.05) == 1.0
    assert upper_bound(7, 7, 0.05) == 1.0


@pytest.mark.parametrize(("max_error", "needed"), [(0.01, 325), (0.05, 64), (0.1, 31)])
def test_this_many_right_comparisons_are_needed(max_error: float, needed: int) -> None:
    """Beside 299, 59 and 29, if one could look only once."""
    assert upper_bound(0, needed - 6, 0.05) > max_error
    assert upper_bound(0, needed + 6, 0.05) <= max_error


@given(st.integers(0, 400), st.integers(0, 40), st.sampled_from([0.05, 0.0125]))
def test_a_right_comparison_lowers_it_and_a_wrong_one_raises_it(right: int, wrong: int, doubt: float) -> None:
    here = upper_bound(wrong, right + wrong, doubt)
    assert here >= wrong / max(1, right + wrong)
    assert upper_bound(wrong, right + wrong + 1, doubt) <= here
    assert upper_bound(wrong + 1, right + wrong + 1, doubt) >= here
    assert upper_bound(wrong, right + wrong, doubt / 2) >= here


def test_it_holds_whenever_it_is_looked_at() -> None:
    """At a true rate of 5 %, it is too low at any time in at most 5 % of 300 series of 1,500 comparisons."""
    rate, series, too_low = 0.05, 300, 0
    draws = random.Random(20)
    fewest = [_fewest_below(rate, wrong) for wrong in range(60)]
    for _ in range(series):
        wrong = 0
        for compared in range(1, 1_501):
            wrong += draws.random() < rate
            if wrong < len(fewest) and compared >= fewest[wrong]:
                too_low += 1
                break
    assert too_low / series <= 0.05 + 0.02


def _fewest_below(rate: float, wrong: int) -> int:
    """Return how many comparisons it takes, with so many wrong ones, that the bound is below a rate."""
    low, high = wrong + 1, 10_000
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if upper_bound(wrong, middle, 0.05) < rate else (middle + 1, high)
    return low
