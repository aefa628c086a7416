"""The agents that the tests of the servers' stores kill: each step leaves a line outside the store."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import ninelives as nl

LEDGER = "NINELIVES_TEST_LEDGER"


def note(line: str) -> int:
    """Write a line that no crash of ours can take back; returns how often it is there."""
    path = Path(os.environ[LEDGER])
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(fd, f"{line}\n".encode())
    finally:
        os.close(fd)
    return path.read_text().splitlines().count(line)


@nl.action
async def add(run: str, n: int) -> int:
    """Add one, and say so."""
    note(f"did {run} {n}")
    return n + 1


@nl.agent(name="servers.count")
async def count(run: str, steps: int) -> int:
    """Add one so many times."""
    n = 0
    for _ in range(steps):
        n = await add(run, n)
        note(f"saw {run} {n}")
    return n


@nl.action
async def hang(n: int) -> int:
    """Wait to be killed in the first life; add one in the next."""
    if note("hangs") == 1:
        await asyncio.Event().wait()
    return n + 1


@nl.agent(name="servers.held")
async def held(run: str) -> int:
    """Add one, then hang; the next life finds the first step recorded."""
    return await hang(await add(run, 0))


@nl.action(resumable=False)
async def pay(run: str) -> int:
    """Do what must not be repeated."""
    note(f"paid {run}")
    return 1


@nl.agent(name="servers.payer")
async def payer(run: str) -> int:
    """Pay, then wait for what does not come."""
    return await pay(run) + await hang(0)
