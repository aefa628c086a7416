"""Every planted bug turns the judge red; without them it is green (test_replay)."""

from __future__ import annotations

from random import Random

import pytest

from tests.replay import lives
from tests.replay.campaign import cases_of
from tests.replay.mutants import MUTANTS, planted

FIRST, PROGRAMS = 1000, 120


@pytest.mark.parametrize("name", MUTANTS)
def test_a_planted_bug_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lives, "HUNG_SECONDS", 1.0)
    with planted(name):
        for seed in range(FIRST, FIRST + PROGRAMS):
            if any(verdict.violations for verdict in cases_of(seed, Random(seed), sweep=8, random=2)):
                return
    pytest.fail(f"{name} was not caught by {PROGRAMS} programs")
