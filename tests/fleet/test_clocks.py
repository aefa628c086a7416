"""A fleet whose clocks jump; and the clock does what it says, so that this means something."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from ninelives.stores.clock import SystemClock
from tests.crash.stores import at
from tests.fleet.clocks import Clock
from tests.fleet.driver import Drive
from tests.fleet.jumps import jumps


def test_a_clock_that_was_set_is_what_the_runtime_goes_by(tmp_path: Path) -> None:
    clock, system = Clock(tmp_path / "clock"), SystemClock()
    with clock.gone_by():
        Clock(tmp_path / "clock").set(-3600)  # by another process
        before, steady = time.time_ns() // 1_000_000, system.boot_ms()
        assert abs(system.now_ms() - before) < 60_000
        clock.set(3600)
        assert system.now_ms() - before > 7_000_000
        assert system.boot_ms() - steady < 60_000


@pytest.mark.parametrize("store", ["sqlite", "redis"])
def test_workers_whose_clocks_jump_lose_repeat_and_strand_nothing(tmp_path: Path, store: str) -> None:
    with at(store, tmp_path), Drive(tmp_path, seed=3, processes=1, lease_seconds=5.0, in_flight=6) as drive:
        report = jumps(drive, 4)
        assert report.violations == [], drive.log()
    assert report.done == 4
