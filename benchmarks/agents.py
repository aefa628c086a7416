"""Workloads of whole agents: what a step costs, all in, and how fast a long run is read again."""

from __future__ import annotations

import asyncio
import os
import time

import ninelives as nl
from benchmarks.raw import PAYLOAD_BYTES
from ninelives.engine import bodies
from ninelives.engine.committer import end_process

_TEXT = os.urandom(PAYLOAD_BYTES // 2).hex()


@nl.action
async def step(number: int) -> str:
    """Give 1 KiB that cannot be compressed."""
    return _TEXT


@nl.agent
async def sequence(steps: int) -> int:
    """Take one step after the other."""
    for number in range(steps):
        await step(number)
    return steps


def sequential(url: str, steps: int) -> float:
    """Return strict steps per second of one run, as `nl.run` executes it."""

    async def main() -> float:
        runtime = nl.Runtime(url)
        runtime._fatal, runtime._is_dedicated = end_process, True
        async with runtime:
            began = time.perf_counter()
            assert await runtime.run(sequence, steps) == steps
            return steps / (time.perf_counter() - began)

    return asyncio.run(main())


def at_once(url: str, runs: int, steps: int) -> float:
    """Return steps per second of many runs, from the first start to the last result."""

    async def main() -> float:
        async with nl.Runtime(url) as runtime:
            began = time.perf_counter()
            started = await asyncio.gather(
                *(runtime.start(sequence, steps, id=f"run-{number}") for number in range(runs))
            )
            await runtime.work(concurrency=runs, until_idle=True)
            assert [await one.result() for one in started] == [steps] * runs
            return runs * steps / (time.perf_counter() - began)

    return asyncio.run(main())


def one_by_one(url: str, runs: int) -> float:
    """Return one-step runs per second, each started when the one before it has ended."""

    async def main() -> float:
        async with nl.Runtime(url) as runtime:
            began = time.perf_counter()
            for number in range(runs):
                assert await runtime.run(sequence, 1, id=f"run-{number}") == 1
            return runs / (time.perf_counter() - began)

    return asyncio.run(main())


def load_seconds(url: str, steps: int) -> float:
    """Return how long the journal of a run of so many steps takes to load, verified."""

    async def main() -> float:
        async with nl.Runtime(url) as runtime:
            run = await runtime.start(sequence, steps, id="long")
            await runtime.work(until_idle=True)
            assert await run.result() == steps
            began = time.perf_counter()
            journal = bodies.load(runtime.store, "long")
            assert len(journal.records) == steps + 2
            return time.perf_counter() - began

    return asyncio.run(main())
