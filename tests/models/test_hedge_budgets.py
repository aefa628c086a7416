"""Budgets under hedging: what may be sent is reserved, and a cancelled request counts as its estimate."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import ninelives as nl
from ninelives.stores.clock import SystemClock
from tests.governance.test_budget_runs import Scene


def scene(home: Path, tokens: int) -> Scene:
    return Scene(home, f'name="b"\nscope="run"\ntokens={tokens}\n', clock=SystemClock())


def decision(first_seconds: float, answer: Any) -> Any:
    requests = []

    async def ask() -> Any:
        requests.append(1)
        await asyncio.sleep(first_seconds if len(requests) == 1 else 0)
        return answer

    hedge = nl.Hedge(after=0.02, most=3, budget=1.0)
    return nl.decision(name="hedged", cost=nl.Cost(tokens=100), hedge=hedge)(ask)


REPORTED = {"usage": {"input_tokens": 10, "output_tokens": 20}}


@pytest.mark.parametrize(
    ("first_seconds", "answer", "spent"),
    [
        (0.0, "says nothing", 100),  # 300 were reserved: three requests may be under way
        (0.0, REPORTED, 30),
        (60.0, "says nothing", 200),  # the one that answered, and the one that was cancelled
        (60.0, REPORTED, 130),
    ],
)
def test_a_cancelled_request_counts_as_its_estimate(
    tmp_path: Path, first_seconds: float, answer: Any, spent: int
) -> None:
    step = decision(first_seconds, answer)

    @nl.agent(name="hedges")
    async def hedges() -> Any:
        return await step()

    made = scene(tmp_path, 1000)
    made.perform(hedges)
    assert made.result() == answer
    assert made.spent() == spent


def test_a_limit_is_not_passed_by_hedging(tmp_path: Path) -> None:
    step = decision(60.0, "says nothing")

    @nl.agent(name="hedges")
    async def hedges() -> Any:
        with pytest.raises(nl.Denied, match="this call reserves 300 tokens"):
            await step()
        return "denied"

    made = scene(tmp_path, 299)
    made.perform(hedges)
    assert made.result() == "denied"
    assert made.spent() == 0
