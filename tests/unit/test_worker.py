"""What a worker claims: free slots are filled, agents take turns, suspects are alone until they move."""

from __future__ import annotations

import asyncio

import pytest

import ninelives as nl
from ninelives.core.model.log_entry import Happening
from ninelives.core.model.run import RunQuery, State
from ninelives.core.model.session import Cause, NewSession
from ninelives.engine.worker import worker
from ninelives.store import Store
from ninelives.views.position import summaries
from ninelives.views.recoveries import recoveries
from tests.replay.lifetimes import QuickStore, run_async


class Meeting:
    """Where runs wait for each other inside a step."""

    def __init__(self) -> None:
        self.wanted = 0
        self.here: set[str] = set()
        self.order: list[str] = []
        self.full = asyncio.Event()

    async def wait(self) -> None:
        """Stay until as many are here as are wanted."""
        self.here.add(nl.info().run)
        if len(self.here) >= self.wanted:
            self.full.set()
        await self.full.wait()


meeting = Meeting()


@nl.action(name="worker.first")
async def first() -> None:
    meeting.order.append(nl.info().run)


@nl.action(name="worker.meet")
async def meet() -> None:
    await meeting.wait()


@nl.agent(name="worker.meeter")
async def meeter(quick: bool = False) -> None:
    await first()
    if not quick:
        await meet()


@nl.agent(name="worker.aaa")
async def aaa() -> None:
    await first()


@nl.agent(name="worker.zzz")
async def zzz() -> None:
    await first()


def begin(wanted: int) -> None:
    """Begin a new meeting, on this event loop."""
    global meeting  # noqa: PLW0603 (steps find it by name)
    meeting = Meeting()
    meeting.wanted = wanted


def suspect(store: Store, agent: str) -> None:
    """Let two workers die under all runs of an agent."""
    for name in ("dies1", "dies2"):
        store.register_session(NewSession(id=name, host="here", pid=1))
        store.claim_runs(name, 100, {agent: 100})
        store.end_sessions([name], Cause.DIED)


def test_a_slot_that_becomes_free_is_filled_however_many_of_the_agent_run() -> None:
    async def main() -> None:
        begin(4)
        async with nl.Runtime(QuickStore()) as rt:
            for number in range(3):
                await rt.start(meeter, id=f"long{number}")
            await rt.start(meeter, True, id="quick")
            for number in range(3, 6):
                await rt.start(meeter, id=f"long{number}")
            await rt.work(4, until_idle=True)
            assert {run.state for run in await rt.list()} == {State.COMPLETED}

    run_async(main)


def test_no_more_of_an_agent_run_at_once_than_its_limit() -> None:
    async def main() -> None:
        begin(2)
        async with nl.Runtime(QuickStore()) as rt:
            for number in range(4):
                await rt.start(meeter, id=f"r{number}")
            working = asyncio.create_task(rt.work(4, limits={"worker.meeter": 2}, until_idle=True))
            await meeting.full.wait()
            assert meeting.here == {"r0", "r1"}
            await working

    run_async(main)


def test_agents_take_turns_with_one_slot_and_priority_goes_first() -> None:
    async def main() -> None:
        begin(0)
        async with nl.Runtime(QuickStore()) as rt:
            for number in range(6):
                await rt.start(aaa, id=f"a{number}")
            for number in range(3):
                await rt.start(zzz, id=f"z{number}")
            await rt.start(zzz, id="high", priority=1)
            await rt.work(1, until_idle=True)
        assert meeting.order[0] == "high"
        turns = "".join(name[0] for name in meeting.order[1:])
        assert turns == "azazazaaa"
        assert sorted(meeting.order[1:7:2]) == ["a0", "a1", "a2"]

    run_async(main)


def test_suspects_run_beside_each_other_once_each_has_moved() -> None:
    async def main() -> None:
        begin(4)
        store = QuickStore()
        async with nl.Runtime(store) as rt:
            for number in range(3):
                await rt.start(meeter, id=f"suspect{number}")
            suspect(store, "worker.meeter")
            await rt.start(meeter, id="innocent")
            await rt.work(until_idle=True)
            assert {run.state for run in await rt.list()} == {State.COMPLETED}

    run_async(main)


def test_nothing_is_begun_beside_a_suspect_that_has_not_moved() -> None:
    async def main() -> None:
        begin(2)
        store = QuickStore()
        async with nl.Runtime(store) as rt:
            await rt.start(stuck, id="suspect")
            suspect(store, "worker.stuck")
            working = asyncio.create_task(rt.work(until_idle=True))
            while not meeting.here:  # noqa: ASYNC110 (the step tells by this)
                await asyncio.sleep(0.001)
            await rt.start(aaa, id="innocent")
            for _ in range(20):
                await asyncio.sleep(0.01)
            assert meeting.order == []
            meeting.full.set()
            await working
            assert meeting.order == ["innocent"]

    run_async(main)


def test_a_suspect_is_told_to_wait_for_its_turn_to_run_alone() -> None:
    async def main() -> None:
        store = QuickStore()
        async with nl.Runtime(store) as rt:
            run = await rt.start(aaa, id="suspect")
            await rt.start(zzz, id="innocent")
            suspect(store, "worker.aaa")
            told = {one.id: one.waits for one in summaries(store, RunQuery())}
            assert told["innocent"] == ""
            assert told["suspect"].startswith("to run solo: 2 workers died")
            assert (await run.checkpoint()).waits == told["suspect"]

    run_async(main)


def test_a_lease_that_ends_is_seen_then_and_not_at_the_next_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "POLL_SECONDS", 3_600.0)

    async def main() -> None:
        begin(0)
        store = QuickStore()
        async with nl.Runtime(store) as rt:
            run = await rt.start(aaa, id="left")
            store.register_session(NewSession(id="cut off", host="elsewhere", pid=1, lease_ms=300))
            assert store.claim_runs("cut off", 1, {"worker.aaa": 1}).runs
            working = asyncio.create_task(rt.work())
            await run.result()
            working.cancel()

    run_async(main)


@nl.agent(name="worker.poison", lives=1)
async def poison() -> None:
    await first()


def test_a_quarantined_run_was_read_and_found_sound() -> None:
    async def main() -> None:
        store = QuickStore()
        async with nl.Runtime(store) as rt:
            run = await rt.start(poison, id="poison")
            suspect(store, "worker.poison")
            store.register_session(NewSession(id="solo", host="here", pid=1))
            assert store.claim_runs("solo", 1, {"worker.poison": 1}, solo=True).runs
            store.end_sessions(["solo"], Cause.DIED)
            await rt.work(until_idle=True)
            assert await run.status() is State.ESCALATED
            (told,) = [one.text for one in recoveries(store, "poison") if one.kind is Happening.RECOVERED]
            assert "verified: 1 record" in told
            assert "WRONG" not in told

    run_async(main)


@nl.agent(name="worker.stuck")
async def stuck() -> None:
    await meet()
