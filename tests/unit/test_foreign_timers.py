"""Agents that wait with asyncio's own timers: their replay keeps the journal's order."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import ninelives as nl
from ninelives.engine.run import delivery
from tests.replay.lifetimes import QuickStore, Stage, first_life, run_async, second_life, twice


class Racing:
    """Two branches that sleep, in each life for another time, and note who was told first."""

    def __init__(self) -> None:
        self.stage, self.store, self.asks_late = Stage(), QuickStore(), True
        self.told: list[str] = []

        @nl.decision(name="step")
        async def step(name: str) -> str:
            return name

        @nl.decision(name="stop")
        async def stop() -> None:
            await self.stage.stop_here()

        async def branch(name: str, first: float, second: float) -> None:
            await asyncio.sleep(second if self.stage.is_second else first)
            if name != "a" or self.asks_late:
                self.told.append(await step(name))

        @nl.agent(name="racing")
        async def racing() -> list[str]:
            self.told = []
            await asyncio.gather(branch("a", 0.0, 0.3), branch("b", 0.05, 0.0))
            self.told.append(await step("c"))
            await stop()
            return self.told

        self.agent = racing


def test_a_recorded_outcome_is_waited_for_behind_a_timer() -> None:
    racing = Racing()

    async def main() -> None:
        await first_life(racing.stage, racing.store, racing.agent)
        assert racing.told == ["a", "b", "c"]
        assert await second_life(racing.store, racing.agent) == ["a", "b", "c"]

    run_async(main)


def test_code_that_no_longer_asks_is_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "SLACK_SECONDS", 0.05)
    racing = Racing()

    async def main() -> None:
        await first_life(racing.stage, racing.store, racing.agent)
        racing.asks_late = False
        assert await second_life(racing.store, racing.agent) == ["b", "c"]

    run_async(main)


Work = Callable[[], Awaitable[Any]]
NOT_RESUMABLE: dict[str, Any] = {"resumable": False}
KEYED: dict[str, Any] = {"key": "pay:{order}"}


async def under_timeout(work: Work) -> Any:
    async with asyncio.timeout(0.05):
        return await work()


async def under_wait_for(work: Work) -> Any:
    return await asyncio.wait_for(work(), 0.05)


async def under_call_later(work: Work) -> Any:
    task = asyncio.ensure_future(work())
    asyncio.get_running_loop().call_later(0.05, task.cancel)
    return await task


async def under_nl_timeout(work: Work) -> Any:
    async with nl.timeout(0.05):
        return await work()


@pytest.mark.parametrize("options", [{}, NOT_RESUMABLE, KEYED, NOT_RESUMABLE | KEYED], ids=str)
@pytest.mark.parametrize(
    ("limit", "told"),
    [
        (under_timeout, "UsageError"),
        (under_wait_for, "UsageError"),
        (under_call_later, "CancelledError"),
        (under_nl_timeout, "TimedOut"),
    ],
)
def test_a_timer_that_ends_an_action_tells_the_same_in_every_life(
    limit: Callable[[Work], Awaitable[Any]], told: str, options: dict[str, Any]
) -> None:
    stage, seen = Stage(), list[str]()

    @nl.action(name="pay", **options)
    async def pay(order: int) -> int:
        await asyncio.sleep(0.1)
        stage.did("paid")
        return order

    @nl.action(name="stop")
    async def stop() -> None:
        await stage.stop_here()

    @nl.agent(name="shop")
    async def shop() -> str:
        try:
            seen.append(f"value {await limit(lambda: pay(1))}")
        except BaseException as error:
            seen.append(type(error).__name__)
        await stop()
        return seen[-1]

    assert twice(stage, shop) == told
    assert seen == [told, told]
    assert stage.executed == []


def test_a_retried_run_finds_what_an_action_came_to_after_its_code_had_withdrawn_it() -> None:
    store, done, is_mended = QuickStore(), list[str](), False

    @nl.action(name="pay", resumable=False)
    async def pay() -> int:
        await asyncio.sleep(0.05)
        done.append("paid")
        return 7

    @nl.action(name="reserve", retry=nl.Retry(attempts=1))
    async def reserve() -> None:
        if not is_mended:
            raise nl.Permanent("out of stock")

    @nl.agent(name="shop")
    async def shop() -> int:
        return (await nl.gather(pay(), reserve()))[0]  # type: ignore[return-value]

    async def main() -> None:
        nonlocal is_mended
        async with nl.Runtime(store) as rt:
            with pytest.raises(nl.RunFailed):
                await rt.run(shop, id="run")
            is_mended = True
            await (await rt.get("run")).retry()
            assert await rt.run(shop, id="run") == 7

    run_async(main)
    assert done == ["paid"]


@pytest.mark.parametrize("how", ["move_on_after", "fail_after"])
def test_a_time_limit_of_anyio_is_refused_in_every_life(how: str) -> None:
    anyio = pytest.importorskip("anyio")
    stage, seen = Stage(), list[str]()

    @nl.action(name="slow")
    async def slow() -> int:
        await asyncio.sleep(30)
        return 1

    @nl.action(name="stop")
    async def stop() -> None:
        await stage.stop_here()

    @nl.agent(name="limited")
    async def agent() -> None:
        try:
            with getattr(anyio, how)(0.05):
                await slow()
            seen.append("moved on")
        except Exception as error:
            seen.append(type(error).__name__)
        await stop()

    twice(stage, agent)
    assert seen == ["UsageError", "UsageError"]


@pytest.mark.parametrize("holder", ["another run", "another branch"])
def test_a_timer_over_a_wait_for_a_key_tells_the_same_when_the_key_is_free(holder: str) -> None:
    stage, seen, paid, store = Stage(), list[str](), list[int](), QuickStore()
    held = asyncio.Event()

    @nl.action(name="pay", key="pay:{order}")
    async def pay(order: int) -> int:
        if not stage.is_second:
            held.set()
            await asyncio.sleep(0.3)
        paid.append(order)
        return order

    @nl.action(name="stop")
    async def stop() -> None:
        await stage.stop_here()

    @nl.agent(name="holder")
    async def holding() -> int:
        return await pay(1)

    @nl.agent(name="shop")
    async def shop() -> str:
        mine = asyncio.ensure_future(pay(1)) if holder == "another branch" else None
        await asyncio.sleep(0.02)
        try:
            seen.append(f"value {await under_call_later(lambda: pay(1))}")
        except BaseException as error:
            seen.append(type(error).__name__)
        if mine is not None:
            await mine
        await stop()
        return seen[-1]

    async def main() -> None:
        async with nl.Runtime(store) as rt:
            other = await rt.start(holding, id="holder") if holder == "another run" else None
            working = asyncio.create_task(rt.work())
            if other is not None:
                await held.wait()
            await rt.start(shop, id="run")
            stage.reached = asyncio.Event()
            await stage.reached.wait()
            if other is not None:
                await other.result()
            working.cancel()
        stage.is_second = True
        assert await second_life(store, shop) == "CancelledError"

    run_async(main)
    assert set(seen) == {"CancelledError"}
    assert paid == [1]
