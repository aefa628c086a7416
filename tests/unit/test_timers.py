"""Time limits: of a block, of a whole run; and waits of plain agents, through `nl.sync`."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest

import ninelives as nl
from ninelives.core.model.run import State
from tests.replay.lifetimes import QuickStore, run_async


@nl.action(name="did")
async def did(what: str) -> str:
    return what


async def parked(store: QuickStore, run: str = "r") -> Any:
    """Wait until the run is parked, and return its row."""
    while True:
        row = store.read_run(run)
        if row is not None and row.state is State.CHECKPOINTED:
            return row
        await asyncio.sleep(0.002)


def epoch(store: QuickStore, run: str = "r") -> int:
    row = store.read_run(run)
    assert row is not None
    return row.epoch


def test_a_time_limit_keeps_to_its_moment_while_the_run_is_parked() -> None:
    @nl.agent
    async def agent() -> str:
        try:
            async with nl.timeout(1.5):
                await nl.receive("never")
        except nl.TimedOut:
            return await did("late")
        return "?"

    async def main() -> None:
        store = QuickStore()
        async with nl.Runtime(store) as rt:
            running = asyncio.create_task(rt.run(agent, id="r"))
            first = await parked(store)
            store.send_signal("r", "disturb", b"1")
            assert await running == "late"
            ended = store.read_run("r")
            assert ended is not None
            assert ended.epoch >= 3
            assert first.due_ms <= ended.changed_ms

    run_async(main)


def test_a_run_with_a_time_limit_fails_wherever_it_is() -> None:
    inside = asyncio.Event()

    @nl.action
    async def endless() -> None:
        inside.set()
        await asyncio.Event().wait()

    @nl.agent(timeout=0.3)
    async def busy() -> None:
        await endless()

    @nl.agent(timeout=0.3)
    async def waiting() -> None:
        await nl.receive("never")

    @nl.agent(timeout=30)
    async def quick() -> str:
        return await did("it")

    async def main() -> None:
        store = QuickStore()
        async with nl.Runtime(store) as rt:
            for agent in (busy, waiting):
                with pytest.raises(nl.RunFailed, match=r"within 0\.3 s") as failed:
                    await rt.run(agent, id=agent.__name__)
                assert isinstance(failed.value.__cause__, nl.TimedOut)
            assert await rt.run(quick) == "it"

    run_async(main)


def test_a_run_that_is_found_too_late_fails_without_running() -> None:
    ran: list[str] = []

    @nl.agent(timeout=0.05)
    async def agent() -> None:
        ran.append("?")

    async def main() -> None:
        store = QuickStore()
        async with nl.Runtime(store) as rt:
            await rt.start(agent, id="r", delay=0.1)
            with pytest.raises(nl.RunFailed, match="TimedOut"):
                await rt.run(agent, id="r")
        assert ran == []

    run_async(main)


@pytest.mark.parametrize("seconds", [0, -1])
def test_a_time_limit_that_is_none_is_refused(seconds: float) -> None:
    with pytest.raises(nl.UsageError, match="timeout"):

        @nl.agent(timeout=seconds)
        async def agent() -> None: ...


def test_plain_agents_wait_durably_and_leave_their_threads() -> None:
    unwound: list[str] = []

    @nl.agent
    def agent() -> list[Any]:
        try:
            nl.sync.sleep(0.2)
            nl.sync.sleep_until(nl.now() - timedelta(seconds=1))
            nl.sync.emit("said")
            first = nl.sync.receive("x", type=int)
            try:
                nl.sync.receive("x", timeout=0.1)
            except nl.TimedOut:
                return [first, "late"]
        finally:
            unwound.append(threading.current_thread().name)
        return []

    async def main() -> None:
        store = QuickStore()
        async with nl.Runtime(store) as rt:
            running = asyncio.create_task(rt.run(agent, id="r"))
            while "signal 'x'" not in (await parked(store)).waits:  # noqa: ASYNC110 (in the store, no event)
                await asyncio.sleep(0.002)
            await (await rt.get("r")).signal("x", 7)
            assert await running == [7, "late"]
            said = [item.value async for item in (await rt.get("r")).stream()]
        assert said == ["said"]
        assert len(unwound) == epoch(store)
        while [one for one in threading.enumerate() if one.name == "run r"]:  # noqa: ASYNC110 (no event)
            await asyncio.sleep(0.002)

    run_async(main)


def test_plain_agents_spawn_children_and_ask_people() -> None:
    @nl.agent(name="child")
    def child(number: int) -> int:
        return number * 2

    @nl.agent(name="parent")
    def parent() -> list[Any]:
        doubled = nl.sync.spawn(child, 4).result()
        return [doubled, nl.sync.ask("Go on?", ["yes", "no"])]

    async def main() -> None:
        store = QuickStore()
        async with nl.Runtime(store) as rt:
            run = await rt.start(parent, id="r")
            working = asyncio.create_task(rt.work())
            while not (items := await rt.inbox()):  # noqa: ASYNC110 (in the store, no event)
                await asyncio.sleep(0.002)
            await items[0].answer("yes", by="ada")
            assert await run.result() == [8, "yes"]
            working.cancel()
            with suppress(asyncio.CancelledError):
                await working

    run_async(main)


def test_nl_sync_is_not_for_the_event_loop() -> None:
    @nl.agent
    async def agent() -> None:
        nl.sync.sleep(0.01)

    async def main() -> None:
        async with nl.Runtime(QuickStore()) as rt:
            with pytest.raises(nl.RunFailed, match="plain function"):
                await rt.run(agent)

    run_async(main)


def test_nl_sync_works_without_a_runtime_as_plain_calls_do() -> None:
    nl.sync.sleep(0)
    with pytest.raises(nl.NoRun):
        nl.sync.receive("x")
