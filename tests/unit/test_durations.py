"""Durations as people write them."""

from __future__ import annotations

import pytest

from ninelives.core.clock import moment
from ninelives.core.durations import duration_ms


@pytest.mark.parametrize(
    ("text", "ms"),
    [("0s", 0), ("90s", 90_000), ("15m", 900_000), ("12h", 43_200_000)],
)
def test_a_duration_has_a_unit(text: str, ms: int) -> None:
    assert duration_ms(text) == ms


@pytest.mark.parametrize(
    "text", ["", "5", "s", "5w", "-5s", "5 s", "\u0665s", "500ms", "1234567890s", "40000d"]
)
def test_other_texts_are_none(text: str) -> None:
    assert duration_ms(text) is None


def test_what_a_store_holds_can_be_shown_though_no_calendar_has_it() -> None:
    assert moment(2**62).year == 9999


def test_milliseconds_only_where_they_make_sense() -> None:
    assert duration_ms("500ms", least_unit="ms") == 500
