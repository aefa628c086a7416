"""Every planted bug turns the judge red; without them it is green (test_seeds)."""

from __future__ import annotations

import pytest

from tests.simulation.mutants import MUTANTS, planted
from tests.simulation.remains import quiet
from tests.simulation.simulation import simulate

SEEDS = range(100)
"""Green without a bug: see test_seeds."""


@pytest.mark.parametrize("name", MUTANTS)
def test_a_planted_bug_is_caught(name: str) -> None:
    with quiet(), planted(name):
        assert any(simulate(seed).violations for seed in SEEDS)
