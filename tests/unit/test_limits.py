"""Time limits over code that does more than steps: that they were kept is on record where it matters."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import ninelives as nl
from ninelives.core.model.run import Kind
from tests.replay.lifetimes import QuickStore, Stage, first_life, once, run_async, second_life, twice


@nl.action(name="did", reads_only=True)
async def did(what: str) -> str:
    return what


def left_in_time(store: QuickStore, run: str) -> int:
    records = store.load_journal(run).records
    return sum(one.kind is Kind.WITHDRAWN and "#timeout#" in one.step for one in records)


def test_a_block_that_was_left_in_time_is_left_in_time_after_parking() -> None:
    seen: list[str] = []

    @nl.agent(name="patient")
    async def agent() -> str:
        try:
            async with nl.timeout(0.15):
                await did("a")
                await asyncio.sleep(0.02)
            seen.append("in time")
        except nl.TimedOut:
            seen.append("timed out")
        return await nl.receive("go", type=str)

    async def main() -> None:
        async with nl.Runtime(QuickStore()) as rt:
            run = await rt.start(agent, id="run")
            await rt.work(until_idle=True)
            await asyncio.sleep(0.2)
            await run.signal("go", "gone")
            assert await rt.run(agent, id="run") == "gone"

    run_async(main)
    assert seen == ["in time", "in time"]


def test_an_effect_after_a_block_that_was_left_in_time_begins_when_that_is_durable() -> None:
    stage, ways = Stage(), list[str]()

    @nl.action(name="ship")
    async def ship(way: str) -> str:
        ways.append(way)
        await stage.stop_here()
        return way

    @nl.agent(name="shipping")
    async def agent() -> str:
        try:
            async with nl.timeout(0.3):
                await asyncio.sleep(0.1)
            way = "in time"
        except nl.TimedOut:
            way = "late"
        return await ship(way)

    async def main() -> None:
        store = QuickStore()
        await first_life(stage, store, agent)
        await asyncio.sleep(0.3)
        assert await second_life(store, agent) == "in time"

    run_async(main)
    assert ways == ["in time", "in time"]


def test_a_block_of_steps_alone_costs_no_record() -> None:
    store = QuickStore()

    @nl.agent(name="frugal")
    async def agent() -> str:
        async with nl.timeout(5):
            await did("a")
            await did("b")
        async with nl.timeout(5):
            pass
        return await did("c")

    assert once(agent, store=store, id="run") == "c"
    assert left_in_time(store, "run") == 0


def test_code_that_stays_in_a_block_that_was_left_in_time_is_limited_from_then_on() -> None:
    stage = Stage()

    @nl.action(name="stop")
    async def stop() -> None:
        await stage.stop_here()

    @nl.agent(name="changed")
    async def agent() -> str:
        try:
            async with nl.timeout(0.05):
                await asyncio.sleep(5 if stage.is_second else 0.01)
        except nl.TimedOut:
            return "limited"
        await stop()
        return "?"

    assert twice(stage, agent) == "limited"


# ------------------------------------------------------------------------------------- asyncio's waits


class Choosing:
    """An agent that waits for a step for a while, and goes one of two ways."""

    def __init__(self, how: str, seconds: float) -> None:
        self.stage, self.ways = Stage(), list[str]()

        @nl.action(name="quote")
        async def quote() -> int:
            await asyncio.sleep(0.1)
            return 7

        @nl.action(name="apologise")
        async def apologise(way: str) -> str:
            await asyncio.sleep(0.2)
            return way

        @nl.action(name="stop")
        async def stop() -> None:
            await self.stage.stop_here()

        @nl.agent(name="choosing")
        async def agent() -> str:
            price = asyncio.ensure_future(quote())
            way = await (by_wait(price) if how == "wait" else by_as_completed(price))
            self.ways.append(way)
            await apologise(way)  # on record after the price
            await price
            await stop()
            return way

        async def by_wait(price: asyncio.Task[int]) -> str:
            done, _ = await asyncio.wait({price}, timeout=seconds)
            return "fast" if done else "slow"

        async def by_as_completed(price: asyncio.Task[int]) -> str:
            try:
                for one in asyncio.as_completed([price], timeout=seconds):
                    await one
            except TimeoutError:
                return "slow"
            return "fast"

        self.agent = agent


@pytest.mark.parametrize(("seconds", "way"), [(0.02, "slow"), (0.0, "slow"), (5.0, "fast")])
@pytest.mark.parametrize("how", ["wait", "as_completed"])
def test_a_limited_wait_of_asyncio_decides_the_same_on_replay(how: str, seconds: float, way: str) -> None:
    choosing = Choosing(how, seconds)
    assert twice(choosing.stage, choosing.agent) == way
    assert choosing.ways == [way, way]


def test_a_limited_wait_of_asyncio_over_a_signal_parks_and_keeps_to_its_moment() -> None:
    ways: list[Any] = []

    @nl.agent(name="waiting")
    async def agent() -> str:
        message = asyncio.ensure_future(nl.receive("s", type=int))
        done, _ = await asyncio.wait({message}, timeout=0.3)
        ways.append(len(done))
        message.cancel()
        return await did("late")

    async def main() -> None:
        store = QuickStore()
        async with nl.Runtime(store) as rt:
            assert await rt.run(agent, id="run") == "late"
        row = store.read_run("run")
        assert row is not None
        assert row.epoch > 1  # it had left memory

    run_async(main)
    assert ways == [0]


def test_a_wait_for_the_first_of_several_without_a_limit_stays_as_it_is() -> None:
    store = QuickStore()

    @nl.agent(name="racing")
    async def agent() -> int:
        tasks = [asyncio.ensure_future(did(one)) for one in "ab"]
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.gather(*tasks)
        return len(done)

    assert once(agent, store=store, id="run") == 1
    assert left_in_time(store, "run") == 0


@pytest.mark.parametrize("seconds", [-1, float("inf"), float("nan"), "1", None, 1e12])
def test_a_limit_that_is_no_time_is_refused(seconds: Any) -> None:
    @nl.agent(name="limited")
    async def agent() -> str:
        with pytest.raises(nl.UsageError, match=r"nl.timeout\(\): .* is no time"):
            async with nl.timeout(seconds):
                pass
        return "refused"

    assert once(agent) == "refused"


def test_a_limit_left_in_time_is_recorded_though_the_next_commit_is_refused() -> None:
    store = QuickStore()
    is_left, is_held = asyncio.Event(), asyncio.Event()

    @nl.action(name="pay", key="pay:{order}")
    async def pay(order: str) -> str:
        is_held.set()
        await is_left.wait()
        return "paid"

    @nl.agent(name="paying")
    async def first() -> str:
        return await pay("a")

    @nl.agent(name="limited")
    async def second() -> str:
        paid = asyncio.ensure_future(pay("a"))  # waits, for its key is the other run's
        async with nl.timeout(5):
            while "waiting" not in {record.kind for record in store.load_journal("two").records}:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        is_left.set()  # the key is settled now, and is refused to who asks for it
        return await paid

    async def main() -> list[str]:
        async with nl.Runtime(store) as rt:
            one = asyncio.create_task(rt.run(first, id="one"))
            await is_held.wait()
            return [await rt.run(second, id="two"), await one]

    assert run_async(main) == ["paid", "paid"]
    assert left_in_time(store, "two") == 1


KILLED = """
import asyncio, os, signal, sys
import ninelives as nl

@nl.action
async def slow() -> None:
    with open("ledger", "a") as ledger:
        ledger.write("slow ")
    await asyncio.sleep(60)

@nl.agent
async def agent() -> str:
    try:
        async with nl.timeout(0.1):
            await slow()
    except nl.TimedOut:
        if sys.argv[1] == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        return "timed out"
    return "in time"

print(nl.run(agent, id="x", store="sqlite:///runs.db"))
"""


def test_a_body_that_a_recorded_limit_cut_off_does_not_begin_again_after_a_kill(tmp_path: Path) -> None:
    """The limit is durable when the agent learns of it; that it withdrew the step is not yet."""
    (tmp_path / "agent.py").write_text(KILLED)

    def live(how: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "agent.py", how]
        return subprocess.run(command, cwd=tmp_path, timeout=60, capture_output=True, text=True, check=False)

    assert live("die").returncode == -signal.SIGKILL
    again = live("live")
    assert again.stdout.strip() == "timed out", again.stderr
    assert (tmp_path / "ledger").read_text() == "slow "
