"""A takeover is timed in the store's time, whatever the worker's own clock says."""

from __future__ import annotations

import msgspec
import pytest

import ninelives as nl
from ninelives.core.journal.recovery_log import Recovery
from ninelives.core.model.log_entry import Happening
from ninelives.core.model.run import Kind, NewRun
from ninelives.core.rules import run_rules
from ninelives.engine.hooks import RecordsCommitted
from ninelives.engine.worker.takeover import Takeover
from ninelives.testing import Sandbox
from ninelives.testing.dying_store import parse_kill
from tests.clocks import SteppingClock

RUN, _ = run_rules.created(NewRun(id="run", agent="agent", fingerprint=b"f" * 16, body=b"{}"), 1, 5_000)


def written(kind: Kind) -> RecordsCommitted:
    return RecordsCommitted(run="run", agent="agent", epoch=1, turn=0, records=((kind, "step"),), change=None)


@pytest.mark.parametrize("jump_ms", [-3_600_000, 0, 3_600_000])
def test_progress_is_told_in_the_stores_time_however_the_workers_clock_is_set(jump_ms: int) -> None:
    clock, told = SteppingClock(), list[Takeover]()
    takeover = Takeover(RUN, 5_000, clock, told.append)
    clock.advance(40)
    clock.jump(jump_ms)
    takeover.committed(written(Kind.LOG))
    assert takeover.progress_ms is None
    takeover.committed(written(Kind.RESULT))
    clock.advance(10)
    takeover.committed(written(Kind.RESULT))
    assert takeover.progress_ms == 5_040
    assert told == [takeover]


def test_a_run_of_which_only_the_end_was_missing_has_made_progress() -> None:
    @nl.action(name="takeover.step")
    async def step() -> int:
        return 1

    @nl.agent(name="takeover.agent")
    async def agent() -> int:
        return await step()

    with Sandbox(kill=parse_kill("before:commit:2")) as sandbox:
        assert sandbox.run(agent) == 1
        (entry,) = [one for one in sandbox.store.read_log() if one.kind is Happening.RECOVERED]
    assert msgspec.json.decode(entry.body, type=Recovery).progress_ms is not None
