"""Retries with long pauses: durable, counted over lives, and never earlier than they were told to be."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import ninelives as nl
from ninelives.core.model.run import State
from tests.replay.lifetimes import QuickStore, run_async

PATIENT = nl.Retry(attempts=2, backoff="constant", base_seconds=2, max_seconds=60)


async def parked(store: QuickStore, claims: int = 1, run: str = "r") -> Any:
    """Wait until the run has been claimed so often and is parked, and return its row."""
    while True:
        row = store.read_run(run)
        if row is not None and row.state is State.CHECKPOINTED and row.epoch >= claims:
            return row
        await asyncio.sleep(0.002)


def test_a_long_pause_parks_the_run_and_the_attempts_go_on_counting() -> None:
    attempts: list[int] = []

    @nl.action(retry=PATIENT)
    async def flaky() -> str:
        attempts.append(nl.info().attempt)
        raise nl.Transient("not now")

    @nl.agent
    async def agent() -> str:
        try:
            return await flaky()
        except nl.Transient as failed:
            return f"gave up: {failed}"

    async def main() -> None:
        store = QuickStore()
        async with nl.Runtime(store) as rt:
            running = asyncio.create_task(rt.run(agent, id="r"))
            row = await parked(store)
            assert "flaky" in row.waits
            assert "not now" in row.waits
            assert await running == "gave up: not now"
        assert attempts == [1, 2]
        ended = store.read_run("r")
        assert ended is not None
        assert ended.epoch == 2, "it left memory for the pause"

    run_async(main)


def test_a_pause_survives_its_process_and_is_not_begun_anew() -> None:
    attempts: list[int] = []

    @nl.action(retry=nl.Retry(attempts=2, backoff="constant", base_seconds=3600, max_seconds=7200))
    async def flaky() -> str:
        attempts.append(nl.info().attempt)
        raise nl.Transient("in an hour")

    @nl.agent
    async def agent() -> str:
        return await flaky()

    async def life(store: QuickStore, number: int) -> Any:
        async with nl.Runtime(store) as rt:
            working = asyncio.create_task(rt.run(agent, id="r"))
            row = await parked(store, number)
            working.cancel()
            with suppress(asyncio.CancelledError):
                await working
            return row

    async def main() -> None:
        store = QuickStore()
        first = await life(store, 1)
        store.send_signal("r", "disturb", b"1")
        second = await life(store, 2)
        assert second.epoch > first.epoch
        assert second.due_ms == first.due_ms
        assert attempts == [1]

    run_async(main)


def test_a_plain_step_in_a_plain_agent_pauses_durably_too() -> None:
    attempts: list[int] = []

    @nl.action(retry=PATIENT)
    def flaky() -> int:
        attempts.append(nl.info().attempt)
        if len(attempts) < 2:
            raise nl.Transient("not now")
        return len(attempts)

    @nl.agent
    def agent() -> int:
        return flaky()

    async def main() -> None:
        store = QuickStore()
        async with nl.Runtime(store) as rt:
            assert await rt.run(agent, id="r") == 2
        assert attempts == [1, 2]

    run_async(main)


def test_a_pause_beside_a_body_at_work_stays_in_memory() -> None:
    tried, go = asyncio.Event(), asyncio.Event()

    @nl.action(retry=PATIENT)
    async def flaky() -> int:
        if not tried.is_set():
            tried.set()
            raise nl.Transient("not now")
        go.set()
        return 1

    @nl.action
    async def busy() -> int:
        await go.wait()
        return 2

    @nl.agent
    async def agent() -> list[int]:
        return list(await asyncio.gather(flaky(), busy()))

    async def main() -> None:
        store = QuickStore()
        async with nl.Runtime(store) as rt:
            assert await rt.run(agent, id="r") == [1, 2]
        row = store.read_run("r")
        assert row is not None
        assert row.epoch == 1

    run_async(main)
