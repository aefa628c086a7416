"""The short form of the fleet programme; `python -m tests.fleet` is the long one."""

from __future__ import annotations

from pathlib import Path

from tests.fleet.driver import Drive
from tests.fleet.nemesis import kills


def test_killed_workers_and_supervisors_lose_repeat_and_strand_nothing(tmp_path: Path) -> None:
    with Drive(tmp_path, seed=4, processes=2, lease_seconds=5.0, in_flight=10) as drive:
        report = kills(drive, 12)
        assert report.violations == [], drive.log()
    assert report.done >= 12
