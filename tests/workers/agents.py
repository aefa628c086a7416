"""What the worker processes of these tests do: `python -m tests.workers.agents STORE LEDGER LEASE WORDS`."""

from __future__ import annotations

import asyncio
import os
import signal
import sys

import ninelives as nl
from ninelives.core.errors import LeaseLost


def note(*words: object) -> None:
    """Write one line to the ledger, whole."""
    fd = os.open(sys.argv[2], os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    os.write(fd, (" ".join(map(str, words)) + "\n").encode())
    os.close(fd)


@nl.action
async def kill() -> None:
    """Kill the process, as a native library would."""
    note("kills", os.getpid())
    os.kill(os.getpid(), signal.SIGKILL)


@nl.action
async def count(number: int) -> int:
    """Do a little, and say so."""
    note("begun", number)
    await asyncio.sleep(0.002)
    return number


@nl.decision
async def decide(number: int) -> dict[str, dict[str, int]]:
    """Answer as a model does."""
    note("asked", number)
    return {"usage": {"input_tokens": 3, "output_tokens": 4}}


@nl.agent(lives=2)
async def poison() -> None:
    """Kill every worker that touches it."""
    await kill()


@nl.agent
async def innocent() -> int:
    """Do some steps."""
    return sum([await count(number) for number in range(3)])


@nl.agent
async def endless() -> None:
    """Never end."""
    number = 0
    while True:
        await decide(number)
        await count(number)
        number += 1


async def main() -> None:
    """Work; with the word `forever`, until killed."""
    url, lease_seconds, words = sys.argv[1], float(sys.argv[3]), sys.argv[4:]
    async with nl.Runtime(url, lease_seconds=lease_seconds) as rt:
        note("works", os.getpid())
        try:
            await rt.work(until_idle="forever" not in words)
        except LeaseLost:
            note("lost", os.getpid())
            os._exit(7)


if __name__ == "__main__":
    asyncio.run(main())
