"""uvloop does not show what is ready: replay keeps its order there too."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

import ninelives as nl
from ninelives.engine.run import quiescence
from tests.replay.lifetimes import DEADLINE_SECONDS, QuickStore, Stage, first_life, second_life

uvloop = pytest.importorskip("uvloop")


def run_on_uvloop(main: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine on uvloop, under a deadline."""

    async def limited() -> Any:
        async with asyncio.timeout(DEADLINE_SECONDS):
            return await main

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(limited())


@pytest.mark.parametrize("seed", range(5))
def test_branches_learn_of_outcomes_in_the_journal_s_order(seed: int) -> None:
    stage, store = Stage(), QuickStore()
    orders: list[list[str]] = []

    @nl.action(name="work")
    async def work(arm: int, number: int) -> int:
        await asyncio.sleep(((arm * 7 + number * 3 + seed) % 5) / 2000)
        return number

    @nl.action(name="stop")
    async def stop() -> None:
        await stage.stop_here()

    @nl.agent(name="racing")
    async def agent() -> list[str]:
        order: list[str] = []
        orders.append(order)

        async def arm(number: int) -> None:
            for count in range(4):
                await work(number, count)
                order.append(f"{number}:{count}")
                await asyncio.sleep(0)
                order.append(f"{number}:{count} later")

        async with asyncio.TaskGroup() as group:
            for number in range(4):
                group.create_task(arm(number))
        await stop()
        return order

    async def main() -> list[str]:
        await first_life(stage, store, agent)
        result: list[str] = await second_life(store, agent)
        return result

    assert run_on_uvloop(main()) == orders[0] == orders[1]
    assert stage.executed == []


def test_plain_agents_and_timeouts_work_and_the_loop_is_put_back() -> None:
    @nl.action(name="double")
    def double(value: int) -> int:
        return 2 * value

    @nl.action(name="hang")
    async def hang() -> None:
        await asyncio.Event().wait()

    @nl.agent(name="plain on uvloop")
    def plain() -> int:
        return double(double(1))

    @nl.agent(name="limited on uvloop")
    async def limited() -> str:
        try:
            async with nl.timeout(0.01):
                await hang()
        except nl.TimedOut:
            return str(await asyncio.to_thread(double, 21))
        return "never"

    async def main() -> tuple[Any, Any]:
        loop = asyncio.get_running_loop()
        async with nl.Runtime(QuickStore()) as rt:
            found = await rt.run(plain), await rt.run(limited)
            assert loop in quiescence._noted
        assert loop not in quiescence._noted
        assert "call_soon" not in vars(loop)
        return found

    assert run_on_uvloop(main()) == (4, "42")


def test_what_was_cancelled_before_it_ran_is_not_ready() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        quiescence.watch(loop)
        try:
            handle = loop.call_soon(print, "never")
            assert quiescence.busy_runs(loop)
            handle.cancel()
            assert not quiescence.busy_runs(loop)
        finally:
            quiescence.unwatch(loop)

    run_on_uvloop(main())
