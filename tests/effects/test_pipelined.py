"""Pipelined runs: when something becomes visible outside, all that it rests on is durable.

So wherever the process is killed, nothing outside rests on a record that is lost with it. Random agents hand
all that they have learnt to their actions, and each body looks, as it begins, into the store.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

import ninelives as nl
from ninelives.core.journal.replay import read_body
from ninelives.core.model.commit import Commit, Verdict
from ninelives.core.model.run import Kind
from ninelives.engine.run.execution import Execution
from tests.replay.lifetimes import QuickStore, run_async

AGENTS = 40
ANSWERS = Random(7)


class SlowStore(QuickStore):
    """A store whose commits take a while, so that what is not waited for is not durable yet."""

    def commit(self, batch: Sequence[Commit]) -> list[Verdict]:
        """Commit, late."""
        time.sleep(0.002)
        return super().commit(batch)


STORES: list[SlowStore] = []
LOST: list[str] = []


def look(what: str, known: list[int]) -> int:
    """Note what an effect that begins now rests on and that is not durable; returns something new."""
    records = STORES[-1].load_journal(nl.info().run, since=0).records
    durable = {bytes(read_body(record).v or b"") for record in records if record.kind is Kind.RESULT}
    LOST.extend(f"{what} rests on {one}" for one in known if str(one).encode() not in durable)
    return ANSWERS.getrandbits(48)


@nl.decision(name="decide")
async def decide(known: list[int]) -> int:
    return ANSWERS.getrandbits(48)


@nl.action(name="read", reads_only=True)
async def read(known: list[int]) -> int:
    return ANSWERS.getrandbits(48)


@nl.action(name="act")
async def act(known: list[int]) -> int:
    return look("an action", known)


@nl.action(name="once", resumable=False)
async def once(known: list[int]) -> int:
    return look("a non-resumable action", known)


@nl.action(name="keyed", key=lambda known: f"key-{nl.info().run}-{len(known)}", identity="known")
async def keyed(known: list[int]) -> int:
    return look("a keyed action", known)


STEPS: tuple[Any, ...] = (decide, decide, decide, read, read, act, once, keyed)


@nl.agent(name="pipelined", durability="pipelined")
async def agent(seed: int) -> int:
    rng, known = Random(seed), list[int]()
    for _ in range(rng.randint(3, 10)):
        if rng.random() < 0.2:
            known += await nl.gather(*(rng.choice(STEPS[:5])(list(known)) for _ in range(rng.randint(2, 3))))
        else:
            known.append(await rng.choice(STEPS)(list(known)))
    return len(known)


def play() -> list[str]:
    """Run random agents at once; returns what rested on something that was not durable."""
    LOST.clear()
    STORES.append(SlowStore())

    async def main() -> None:
        async with nl.Runtime(STORES[-1]) as rt:
            runs = [await rt.start(agent, seed) for seed in range(AGENTS)]
            await rt.work(until_idle=True)
            for run in runs:
                await run.result(30)

    run_async(main)
    return list(LOST)


def test_nothing_visible_rests_on_what_could_be_lost() -> None:
    assert play() == []


def test_without_the_barrier_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    async def nothing(_: Execution, **__: object) -> None:
        await asyncio.sleep(0)

    monkeypatch.setattr(Execution, "barrier", nothing)
    assert play() != []
