"""The machine itself: the same seed is the same history, in every process."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.simulation.mutants import planted
from tests.simulation.shrinking import kind_of, shrink
from tests.simulation.simulation import simulate

_DIGEST = "from tests.simulation.simulation import simulate; print(simulate(11).digest)"


def test_the_same_seed_gives_the_same_trace() -> None:
    once = simulate(11)
    assert once.trace == simulate(11).trace
    assert once.digest != simulate(12).digest


def test_the_same_seed_gives_the_same_trace_in_another_process() -> None:
    other = subprocess.run(
        [sys.executable, "-c", _DIGEST],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONHASHSEED": "7"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert other.stdout.strip() == simulate(11).digest


def test_a_seed_without_faults_has_no_deaths() -> None:
    report = simulate(11, plan=())
    assert (report.violations, report.deaths) == ([], 0)


def test_a_red_seed_is_cut_down_to_the_faults_that_matter() -> None:
    with planted("output_not_retracted"):
        report = next(red for red in map(simulate, range(100)) if red.violations)
        few = shrink(report)
        again = simulate(report.seed, few)
    assert 0 < len(few) < len(report.plan)
    assert kind_of(again) & kind_of(report)
