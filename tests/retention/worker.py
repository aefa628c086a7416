"""A process that starts runs, and works on all that are due, until it is killed."""

from __future__ import annotations

import asyncio
import sys

import ninelives as nl
from tests.retention.load import agent


async def main(url: str) -> None:
    """Run agents, some at once, without end; also those that a killed process left."""
    async with nl.Runtime(url) as rt:
        working = asyncio.create_task(rt.work())
        while not working.done():
            started = [await rt.start(agent, 10) for _ in range(10)]
            await asyncio.gather(*(one.result() for one in started))
            print("done", flush=True)
        await working


if __name__ == "__main__":
    asyncio.run(main(f"sqlite:///{sys.argv[1]}"))
