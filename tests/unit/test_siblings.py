"""Non-resumable actions that have started when the agent's own code is through: the run ends after them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

import ninelives as nl
from ninelives.core.model.run import Kind, State
from ninelives.engine.run import lifecycle, tasks
from tests.replay.lifetimes import QuickStore, Stage, first_life, run_async


@pytest.fixture(autouse=True)
def _brief(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let code that does not leave be abandoned soon."""
    monkeypatch.setattr(tasks, "ABANDON_SECONDS", 0.05)
    monkeypatch.setattr(lifecycle, "STOP_SECONDS", 0.05)


class Shop:
    """Actions that say what they do, in a list."""

    def __init__(self, **options: Any) -> None:
        self.said: list[str] = []
        self.begun = threading.Event()

        @nl.action(name="charge", resumable=False, **options)
        async def charge() -> int:
            self.begun.set()
            await asyncio.sleep(0.3)
            self.said.append("charged")
            return 1

        @nl.action(name="charge-plainly", resumable=False, **options)
        def charge_plainly() -> int:
            self.begun.set()
            threading.Event().wait(0.3)
            self.said.append("charged")
            return 1

        @nl.action(name="send")
        def send() -> int:
            self.begun.set()
            threading.Event().wait(0.3)
            self.said.append("sent")
            return 1

        @nl.action(name="reserve", retry=nl.Retry(attempts=1))
        async def reserve() -> None:
            await asyncio.to_thread(self.begun.wait)
            raise nl.Permanent("out of stock")

        @nl.action(name="refund")
        async def refund() -> None:
            self.said.append("refunded")

        self.charge, self.charge_plainly, self.send = charge, charge_plainly, send
        self.reserve, self.refund = reserve, refund

    def in_thread(self) -> Any:
        return asyncio.to_thread(self.charge_plainly)


def outcomes(store: QuickStore, name: str, run: str = "run") -> list[Kind]:
    return [one.kind for one in store.load_journal(run, since=0).records if f"#{name}#" in one.step]


def state(store: QuickStore, run: str = "run") -> State:
    row = store.read_run(run)
    assert row is not None
    return row.state


@pytest.mark.parametrize("is_plain", [False, True])
def test_a_failing_sibling_does_not_break_a_non_resumable_action_off(is_plain: bool) -> None:
    shop, store = Shop(), QuickStore()

    @nl.agent(name="seller")
    async def agent() -> None:
        nl.on_failure(shop.refund)
        await asyncio.gather(shop.in_thread() if is_plain else shop.charge(), shop.reserve())

    async def main() -> None:
        async with nl.Runtime(store) as rt:
            with pytest.raises(nl.RunFailed, match="out of stock"):
                await rt.run(agent, id="run")

    run_async(main)
    assert shop.said == ["charged", "refunded"]
    name = "charge-plainly" if is_plain else "charge"
    assert Kind.RESULT in outcomes(store, name)


def test_an_agent_that_returns_does_not_break_a_non_resumable_action_off() -> None:
    shop, store = Shop(), QuickStore()

    @nl.agent(name="hasty")
    async def agent() -> str:
        charging = asyncio.ensure_future(shop.charge())
        await asyncio.to_thread(shop.begun.wait)
        return "done" if not charging.done() else "?"

    async def main() -> None:
        async with nl.Runtime(store) as rt:
            assert await rt.run(agent, id="run") == "done"

    run_async(main)
    assert shop.said == ["charged"]
    assert Kind.RESULT in outcomes(store, "charge")


def test_a_cancelled_run_is_undone_after_its_action_in_progress() -> None:
    shop, store = Shop(), QuickStore()

    @nl.agent(name="cancelled")
    async def agent() -> int:
        nl.on_failure(shop.refund)
        return await shop.charge()

    async def main() -> None:
        async with nl.Runtime(store) as rt:
            run = await rt.start(agent, id="run")
            working = asyncio.create_task(rt.work())
            await asyncio.to_thread(shop.begun.wait)
            await run.cancel()
            with pytest.raises(nl.RunCancelled):
                await run.result()
            working.cancel()

    run_async(main)
    assert shop.said == ["charged", "refunded"]
    assert Kind.RESULT in outcomes(store, "charge")


def test_what_undoes_a_resumable_action_comes_after_the_thread_that_is_still_at_it() -> None:
    shop, store = Shop(), QuickStore()

    @nl.agent(name="sender")
    async def agent() -> None:
        nl.on_failure(shop.refund)
        await asyncio.gather(asyncio.to_thread(shop.send), shop.reserve())

    async def main() -> None:
        async with nl.Runtime(store) as rt:
            with pytest.raises(nl.RunFailed, match="out of stock"):
                await rt.run(agent, id="run")

    run_async(main)
    assert shop.said == ["sent", "refunded"]
    assert Kind.WITHDRAWN in outcomes(store, "send")


def _failing(shop: Shop, charge: Callable[[], Any]) -> Any:
    @nl.agent(name="seller")
    async def agent() -> None:
        nl.on_failure(shop.refund)
        await asyncio.gather(charge(), shop.reserve())

    return agent


def test_a_doubt_of_a_sibling_goes_to_a_person_before_the_run_fails() -> None:
    shop, store = Shop(), QuickStore()

    @nl.action(name="pay", resumable=False, timeout=0.1)
    async def pay() -> int:
        shop.begun.set()
        await asyncio.sleep(60)
        return 1

    agent = _failing(shop, pay)

    async def main() -> None:
        async with nl.Runtime(store) as rt:
            run = await rt.start(agent, id="run")
            await rt.work(until_idle=True)
            assert state(store) is State.ESCALATED
            assert shop.said == []
            (item,) = await rt.inbox()
            assert "Did pay happen?" in item.asked.what
            await item.settle(happened=True, result=5, by="ann")
            with pytest.raises(nl.RunFailed, match="out of stock"):
                await rt.run(agent, id="run")
            assert (await run.status()) == "failed"

    run_async(main)
    assert shop.said == ["refunded"]
    assert Kind.RESULT in outcomes(store, "pay")


def test_a_start_of_a_life_that_died_is_settled_before_the_run_fails_on_replay() -> None:
    shop, store, stage = Shop(), QuickStore(), Stage()

    async def verify(**_: Any) -> Any:
        shop.said.append("verified")
        return nl.Happened(3)

    @nl.action(name="pay", resumable=False, verify=verify)
    async def pay() -> int:
        shop.begun.set()
        await stage.stop_here()
        return 1

    @nl.action(name="tell")
    async def tell() -> None:
        await asyncio.to_thread(shop.begun.wait)

    @nl.agent(name="seller")
    async def agent() -> None:
        nl.on_failure(shop.refund)
        paying = asyncio.ensure_future(pay())
        await tell()
        if stage.is_second:
            raise nl.Permanent("out of stock")
        await paying

    async def main() -> None:
        await first_life(stage, store, agent)
        async with nl.Runtime(store) as rt:
            with pytest.raises(nl.RunFailed, match="out of stock"):
                await rt.run(agent, id="run")

    run_async(main)
    assert shop.said == ["verified", "refunded"]
    assert Kind.RESULT in outcomes(store, "pay")
