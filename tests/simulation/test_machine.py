"""The machine itself: the same seed is the same history, in every process."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.simulation.campaign import run_all
from tests.simulation.simulation import simulate

_DIGEST = "from tests.simulation.simulation import simulate; print(simulate(11).digest)"


def test_the_same_seed_gives_the_same_trace() -> None:
    assert simulate(11).trace == simulate(11).trace
    assert simulate(11).digest != simulate(12).digest


def test_the_same_seed_gives_the_same_trace_in_another_process() -> None:
    path = os.pathsep.join(sys.path)
    found = [
        subprocess.run(
            [sys.executable, "-c", _DIGEST],
            env={**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for seed in ("1", "2")
    ]
    assert found == [simulate(11).digest] * 2


def test_a_seed_without_faults_has_no_deaths() -> None:
    report = simulate(11, plan=())
    assert (report.violations, report.deaths) == ([], 0)


def test_a_red_seed_says_how_to_see_it_again() -> None:
    tally = run_all([11])
    assert tally.seeds == 1
    assert tally.red == []
