"""Killed around two requests: they are sent again, one answer is recorded, and replay asks nobody."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

import ninelives as nl
from ninelives.testing import Sandbox, crashproof
from tests.crash.forkserver import ForkServer
from tests.crash.stores import bury
from tests.models.hedge_lives import ModelServer, Moment

LIFE = "tests.models.hedge_lives:life"
SENT: dict[Moment, tuple[int, int]] = {
    "first request": (1, 2),
    "both requests": (2, 2),
    "before the record": (2, 2),
    "after the record": (2, 0),
}
"""By the moment of death: how many requests the first life has sent, and how many the second one sends."""


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    with ForkServer() as server:
        yield server


@pytest.mark.parametrize("moment", list(SENT))
def test_two_requests_under_way_come_to_one_answer(ground: Path, server: ForkServer, moment: Moment) -> None:
    with ModelServer() as model:
        model.kill_at = {"first request": 1, "both requests": 2}.get(moment, 0)
        death = server.run(LIFE, home=str(ground), port=model.port, moment=moment)
        assert death.was_killed, death
        model.kill_at = 0
        before, after = SENT[moment]
        assert len(model.requests) == before
        for sent in (before + after, before + after):  # the third life replays the end
            bury(ground)
            ended = server.run(LIFE, home=str(ground), port=model.port).result()
            assert ended["outcomes"] == 1
            assert len(model.requests) == sent
        assert ended["result"] == f"answer {before + after}"
        assert len({key for _, _, key in model.requests}) == 1, "the provider sees one key"
        assert [way for _, way, _ in model.requests][:2] == ["/first", "/second"][:before] + ["/first"] * (
            2 - before
        )


def test_in_memory_each_death_comes_to_the_same_answer() -> None:
    def story(sandbox: Sandbox) -> str:
        async def never() -> str:
            await asyncio.sleep(1_000)
            return "never"

        async def quick() -> str:
            await asyncio.sleep(0.1)
            return "quick"

        hedge = nl.Hedge(after=1, budget=1.0)
        step = nl.decision(name="sandboxed", alternatives=[quick], hedge=hedge)(never)

        @nl.agent(name="sandboxed.asks")
        async def asks() -> str:
            return await step()

        return str(sandbox.run(asks, id="run"))

    assert crashproof(story).outcome == "quick"
