"""A worker process of the halt tests: `python -m tests.governance.halt_agents STORE LEDGER LEASE [deaf]`.

Its agents act every few milliseconds without end, and note each body that begins in the ledger. A deaf one
gets no wake-ups from the store.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time

import ninelives as nl
from ninelives.stores.open import open_store

PAUSE_SECONDS = 0.005


def note(*words: object) -> None:
    """Write one line to the ledger, whole."""
    fd = os.open(sys.argv[2], os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    os.write(fd, (" ".join(map(str, (*words, time.time_ns()))) + "\n").encode())
    os.close(fd)


@nl.action(resumable=False)
async def pay(run: str, number: int) -> int:
    """Do what must not be done twice."""
    note("pay", run, number)
    return number


@nl.action(key="charge:{run}:{number}")
async def charge(run: str, number: int) -> int:
    """Do what a key protects."""
    note("charge", run, number)
    return number


@nl.action
async def look(run: str, number: int) -> int:
    """Do what may be repeated."""
    note("look", run, number)
    return number


STEPS = {"payer": pay, "charger": charge, "looker": look}


async def _act(name: str) -> None:
    number, run = 0, nl.info().run
    while True:
        await STEPS[name](run, number)
        number += 1
        await asyncio.sleep(PAUSE_SECONDS)


@nl.agent
async def payer() -> None:
    """Pay without end."""
    await _act("payer")


@nl.agent
async def charger() -> None:
    """Charge without end."""
    await _act("charger")


@nl.agent
async def looker() -> None:
    """Look without end."""
    await _act("looker")


def _sleep(seconds: float) -> bool:
    time.sleep(seconds)
    return False


async def main() -> None:
    """Work until killed."""
    url, _, lease, *words = sys.argv[1:]
    store = open_store(url)
    if "deaf" in words:
        vars(store)["wait_for_work"] = _sleep
    async with nl.Runtime(store, lease_seconds=float(lease)) as rt:
        note("ready", os.getpid(), 0)
        await rt.work(concurrency=200)


if __name__ == "__main__":
    asyncio.run(main())
