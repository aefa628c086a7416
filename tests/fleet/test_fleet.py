"""The short form of the fleet programme; `python -m tests.fleet` is the long one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.stores import SERVED, at
from tests.fleet.driver import Drive
from tests.fleet.nemesis import kills, rolls, zombies


def test_killed_workers_and_supervisors_lose_repeat_and_strand_nothing(tmp_path: Path) -> None:
    with Drive(tmp_path, seed=4, processes=2, lease_seconds=5.0, in_flight=10) as drive:
        report = kills(drive, 12)
        assert report.violations == [], drive.log()
    assert report.done >= 12


def test_a_rolling_restart_under_load_loses_strands_and_repeats_nothing(tmp_path: Path) -> None:
    with Drive(tmp_path, seed=5, processes=2, lease_seconds=5.0, in_flight=10) as drive:
        report = rolls(drive, 2)
        assert report.violations == [], drive.log()
        deaths = [drive.store.read_run(run) for run in drive.expected]
        assert not any(row.deaths for row in deaths if row is not None)
    assert report.runs > 10


def test_zombies_that_wake_up_past_their_lease_write_nothing_and_begin_nothing(tmp_path: Path) -> None:
    with Drive(tmp_path, seed=6, processes=2, lease_seconds=0.5, in_flight=10) as drive:
        report = zombies(drive, 2)
        assert report.violations == [], drive.log()
    assert report.done >= 2


@pytest.mark.parametrize("store", SERVED)
def test_a_killed_fleet_on_a_server_loses_repeats_and_strands_nothing(tmp_path: Path, store: str) -> None:
    with at(store, tmp_path), Drive(tmp_path, seed=7, processes=2, lease_seconds=5.0, in_flight=8) as drive:
        report = kills(drive, 5)
        assert report.violations == [], drive.log()
    assert report.done >= 5


@pytest.mark.parametrize("store", SERVED)
def test_zombies_on_a_server_write_nothing_and_begin_nothing(tmp_path: Path, store: str) -> None:
    with at(store, tmp_path), Drive(tmp_path, seed=8, processes=2, lease_seconds=0.5, in_flight=8) as drive:
        report = zombies(drive, 1)
        assert report.violations == [], drive.log()
    assert report.done >= 1
