"""What grows is seen, what is flat is not; and a short soak is flat."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fleet.driver import Drive
from tests.fleet.soak import Sample, growth, soak

FLAT = [Sample(40.0 + number % 3, 20 + number % 2) for number in range(40)]


def test_what_is_flat_has_not_grown() -> None:
    warming_up = [Sample(10.0 + number, number) for number in range(10)]
    assert growth("worker", warming_up + FLAT)[1] == []


@pytest.mark.parametrize(
    "leak",
    [
        [Sample(40.0 + number, 20) for number in range(40)],
        [Sample(40.0, 20 + number) for number in range(40)],
    ],
)
def test_what_leaks_has_grown(leak: list[Sample]) -> None:
    assert growth("worker", leak)[1] != []


def test_a_short_soak_is_flat(tmp_path: Path) -> None:
    with Drive(tmp_path, seed=9, processes=2, lease_seconds=5.0, in_flight=8) as drive:
        result = soak(drive, 2.0)
        assert result.violations == [], drive.log()
    assert result.kills > 0
