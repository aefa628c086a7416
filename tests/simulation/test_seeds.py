"""The engine in virtual time: half of the seeds that every test run looks at."""

from __future__ import annotations

from tests.simulation.campaign import run_covering
from tests.simulation.coverage import missing


def test_no_seed_violates_a_promise() -> None:
    tally = run_covering(range(150))
    assert tally.red == []
    assert missing(tally.covered) == []
