"""Small programs, killed before and after every call of the store."""

from __future__ import annotations

from itertools import count, islice

import pytest

from tests.replay.campaign import at_every_call
from tests.replay.programs import program_of

SMALL_CHARACTERS, PROGRAMS = 420, 24


def _small() -> list[int]:
    seeds = (seed for seed in count(5000) if len(repr(program_of(seed))) < SMALL_CHARACTERS)
    return list(islice(seeds, PROGRAMS))


@pytest.mark.parametrize("seed", _small())
def test_a_program_can_be_killed_at_every_call_of_the_store(seed: int) -> None:
    deaths = 0
    for verdict in at_every_call(seed):
        assert not verdict.violations, str(verdict)
        deaths += len(verdict.deaths)
    assert deaths > 10  # how often the store is called depends on how calls meet in batches: 20 has been seen
