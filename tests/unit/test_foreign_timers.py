"""Agents that wait with asyncio's own timers: their replay keeps the journal's order."""

from __future__ import annotations

import asyncio

import pytest

import ninelives as nl
from ninelives.engine import delivery
from tests.replay.lifetimes import QuickStore, Stage, first_life, run_async, second_life


class Racing:
    """Two branches that sleep, in each life for another time, and note who was told first."""

    def __init__(self) -> None:
        self.stage, self.store, self.asks_late = Stage(), QuickStore(), True
        self.told: list[str] = []

        @nl.action(name="step")
        async def step(name: str) -> str:
            return name

        @nl.action(name="stop")
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
