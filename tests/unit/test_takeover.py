"""A takeover is timed in the store's time, whatever the worker's own clock says."""

from __future__ import annotations

import pytest

from ninelives.core.model.run import NewRun
from ninelives.core.rules import run_rules
from ninelives.engine.worker.takeover import Takeover
from tests.clocks import SteppingClock

RUN, _ = run_rules.created(NewRun(id="run", agent="agent", fingerprint=b"f" * 16, body=b"{}"), 1, 5_000)


@pytest.mark.parametrize("jump_ms", [-3_600_000, 0, 3_600_000])
def test_progress_is_told_in_the_stores_time_however_the_workers_clock_is_set(jump_ms: int) -> None:
    clock, told = SteppingClock(), list[Takeover]()
    takeover = Takeover(RUN, 5_000, clock, told.append)
    clock.advance(40)
    clock.jump(jump_ms)
    takeover.progress()
    clock.advance(10)
    takeover.progress()
    assert takeover.progress_ms == 5_040
    assert told == [takeover]
