"""A takeover is timed in the store's time, and its log does not compete with the run."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any, cast

import msgspec
import pytest
from msgspec.structs import replace

import ninelives as nl
from ninelives.core.journal.recovery_log import Left, Recovery
from ninelives.core.model.log_entry import Happening
from ninelives.core.model.run import Kind, NewRun
from ninelives.core.model.session import Cause
from ninelives.core.rules import run_rules
from ninelives.core.rules.recovery_check import faults_of_state
from ninelives.engine.hooks import RecordsCommitted
from ninelives.engine.worker.takeover import Takeover
from ninelives.stores.clock import SystemClock
from ninelives.stores.memory import MemoryStore
from ninelives.testing import Sandbox
from ninelives.testing.dying_store import parse_kill
from tests.clocks import SteppingClock
from tests.contract.makers import append, new_session

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


def test_a_run_has_resumed_when_it_first_writes_although_its_first_step_takes_long() -> None:
    clock = SteppingClock()
    takeover = Takeover(RUN, 5_000, clock, lambda _: None)
    clock.advance(40)
    takeover.committed(written(Kind.INTENT))
    clock.advance(60_000)
    takeover.committed(written(Kind.RESULT))
    assert (takeover.resumed_ms, takeover.progress_ms) == (5_040, 65_040)


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


@pytest.mark.parametrize(("is_resumable", "kind"), [(True, "resumable"), (False, "keyed")])
def test_a_body_that_begins_again_is_counted_so_although_its_action_has_a_key(
    is_resumable: bool, kind: str
) -> None:
    begun: list[str] = []

    @nl.action(name="takeover.keyed", key="k:{order}", resumable=is_resumable)
    async def keyed(order: int) -> int:
        begun.append("body")
        return 1

    @nl.agent(name="takeover.keyed_agent")
    async def agent() -> int:
        return await keyed(1)

    with Sandbox(kill=parse_kill("before:commit:2")) as sandbox:
        with suppress(Exception):  # the other one is in doubt
            sandbox.run(agent)
        (entry,) = [one for one in sandbox.store.read_log() if one.kind is Happening.RECOVERED]
    found = msgspec.json.decode(entry.body, type=Recovery)
    assert found.redone_kinds == {kind: 1}
    assert found.outcome == ("recovered" if is_resumable else "escalated")  # it stopped for a person
    assert len(begun) == (2 if is_resumable else 1)


def test_a_journal_that_is_not_as_the_last_worker_left_it_is_a_fault() -> None:
    store = MemoryStore(SteppingClock())
    store.register_session(new_session("s1"))
    store.create_runs([NewRun(id="r", agent="agent", fingerprint=b"f" * 16, body=b"{}")])
    (run,) = store.claim_runs("s1", 1, {"agent": 1}).runs
    store.commit([append(run, b"1", b"2", kind=Kind.LOG)])
    store.end_sessions(["s1"], Cause.DIED)
    (entry,) = [one for one in store.read_log(run="r") if one.kind is Happening.LEFT]
    left, journal = msgspec.json.decode(entry.body, type=Left), store.load_journal("r", since=0)
    assert left.head == journal.run.head.hex()
    assert faults_of_state(left, journal.run.length, journal.records) == ()
    assert "3 records, and 2 are there" in faults_of_state(left, 2, journal.records[:2])[0]
    other = replace(left, head="00" * 16)
    (fault,) = faults_of_state(other, journal.run.length, journal.records)
    assert fault == "state: record 2 is not the one that the last worker left"
