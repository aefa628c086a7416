"""The same for programs that sleep: in memory, parked, and killed around both."""

from __future__ import annotations

from random import Random

import pytest

from tests.replay.campaign import at_random
from tests.replay.programs import SLEEPY_FROM, program_of

PROGRAMS, CHUNK = 60, 20


@pytest.mark.parametrize("first", range(SLEEPY_FROM, SLEEPY_FROM + PROGRAMS, CHUNK))
def test_killed_sleepers_end_as_if_nothing_had_happened(first: int) -> None:
    deaths = 0
    for seed in range(first, first + CHUNK):
        for verdict in at_random(seed, Random(seed)):
            assert not verdict.violations, str(verdict)
            deaths += len(verdict.deaths)
    assert deaths > 0


def test_sleepers_sleep_long_and_short() -> None:
    text = repr([program_of(seed) for seed in range(SLEEPY_FROM, SLEEPY_FROM + PROGRAMS)])
    for seconds in (0.0, 0.0005, 0.06):
        assert f"seconds={seconds})" in text
