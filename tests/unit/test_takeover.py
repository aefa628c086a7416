"""A takeover is timed in the store's time, and its log does not compete with the run."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import msgspec
import pytest

import ninelives as nl
from ninelives.core.journal.recovery_log import Recovery
from ninelives.core.model.log_entry import Happening
from ninelives.core.model.run import Kind, NewRun
from ninelives.core.model.session import Cause
from ninelives.core.rules import run_rules
from ninelives.engine.hooks import RecordsCommitted
from ninelives.engine.worker.takeover import Takeover
from ninelives.stores.clock import SystemClock
from ninelives.stores.memory import MemoryStore
from ninelives.testing import Sandbox
from ninelives.testing.dying_store import parse_kill
from tests.clocks import SteppingClock
from tests.contract.makers import new_session

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


class NotingStore:
    """Notes the order of the writing calls."""

    def __init__(self, under: MemoryStore) -> None:
        self._under = under
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name in ("append_log", "commit"):
            self.calls.append(name)
        return getattr(self._under, name)


@nl.action(name="takeover.add")
async def add(number: int) -> int:
    return number + 1


@nl.agent(name="takeover.counts")
async def counts(steps: int) -> int:
    total = 0
    for _ in range(steps):
        total = await add(total)
    return total


def test_the_log_of_a_takeover_is_written_after_the_first_new_commit_of_the_run() -> None:
    under = MemoryStore(SystemClock())
    store = NotingStore(under)

    async def main() -> None:
        async with nl.Runtime(cast("Any", store)) as rt:
            run = await rt.start(counts, 3, id="left")
            under.register_session(new_session("gone"))
            under.claim_runs("gone", 1, {"takeover.counts": 1})
            under.end_sessions(["gone"], Cause.DIED)
            await rt.work(until_idle=True)
            assert await run.result() == 3

    asyncio.run(main())
    assert store.calls[0] == "commit"
    assert store.calls.count("append_log") <= 2
    kinds = [entry.kind for entry in reversed(under.read_log(run="left"))]
    assert kinds == [Happening.LEFT, Happening.TAKEN, Happening.RECOVERED, Happening.COMPLETED]


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
