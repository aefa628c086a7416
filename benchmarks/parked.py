"""Parked runs: what 100,000 of them cost a worker that has nothing to do, and how fast one wakes.

`python -m benchmarks.parked [--runs N]` measures a worker process beside 100 parked runs and beside N, and
says: its start (until a fresh run is done), its memory, its CPU while idle, wake-up by signal, lateness of
timers. Runs are parked through the store itself: the rows are those that parking leaves.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path
from random import Random

import ninelives as nl
from ninelives.backends.sqlite import SqliteStore
from ninelives.core.commits import Commit, Park
from ninelives.core.model import NewRun, Run
from ninelives.core.sessions import Cause, NewSession
from ninelives.engine import arguments
from ninelives.engine.registry import get_agent

BATCH = 2_000
WAKE_UPS, TIMERS, IDLE_SECONDS = 40, 10, 5.0


@nl.agent(name="waiter")
async def waiter(number: int) -> float:
    """Wait for a signal; return when it came."""
    await nl.receive("go")
    return time.time()


@nl.agent(name="sleeper")
async def sleeper(number: int) -> float:
    """Sleep; return how late we woke, in seconds."""
    due = nl.now() + timedelta(seconds=1)
    await nl.sleep_until(due)
    return time.time() - due.timestamp()


@nl.agent(name="fresh")
async def fresh() -> float:
    """Return at once."""
    return time.time()


def park(path: Path, runs: int) -> None:
    """Fill a store with parked runs."""
    store, agent = SqliteStore(path), get_agent(waiter)
    try:
        for first in range(0, runs, BATCH):
            numbers = range(first, min(first + BATCH, runs))
            new = [_new(agent.name, number) for number in numbers]
            store.create_runs(new)
            session = f"parker-{first}"
            store.register_session(NewSession(id=session, host="bench", pid=os.getpid()))
            claimed = store.claim_runs(session, BATCH, {agent.name: BATCH}).runs
            store.commit([_parked(run) for run in claimed])
            store.end_sessions([session], Cause.STOPPED)
    finally:
        store.close()


def _new(name: str, number: int) -> NewRun:
    agent = get_agent(waiter)
    body, _ = arguments.encode(agent, (number,), {})
    return NewRun(id=f"w{number}", agent=name, fingerprint=agent.fingerprint((number,), {}).digest, body=body)


def _parked(run: Run) -> Commit:
    change = Park(due_ms=None, waits="for the signal 'go'", news_seen=run.news)
    return Commit(run=run.id, epoch=run.epoch, length=run.length, head=run.head, change=change)


def measure(folder: Path, runs: int) -> dict[str, float]:
    """Measure a worker process beside so many parked runs."""
    path = folder / f"{runs}" / "runs.db"
    path.parent.mkdir()
    park(path, runs)
    began = time.time()
    worker = subprocess.Popen([sys.executable, "-m", "benchmarks.parked", "--work", str(path)])
    try:
        return asyncio.run(_ask(path, worker.pid, runs, began))
    finally:
        worker.kill()
        worker.wait()


async def _ask(path: Path, pid: int, runs: int, began: float) -> dict[str, float]:
    async with nl.Runtime(f"sqlite:///{path}") as rt:
        first = await (await rt.start(fresh)).result()
        memory, before = _memory_mib(pid), _cpu_seconds(pid)
        await asyncio.sleep(IDLE_SECONDS)
        idle = (_cpu_seconds(pid) - before) / IDLE_SECONDS
        woken = []
        for number in Random(7).sample(range(runs), WAKE_UPS):
            run = await rt.get(f"w{number}")
            sent = time.time()
            await run.signal("go")
            woken.append(await run.result() - sent)
        sleepers = [await rt.start(sleeper, number) for number in range(TIMERS)]
        late = [await run.result() for run in sleepers]
    return {
        "start s": first - began,
        "memory MiB": memory,
        "memory after MiB": _memory_mib(pid),
        "idle CPU %": idle * 100,
        "wake-up median ms": statistics.median(woken) * 1000,
        "wake-up worst ms": max(woken) * 1000,
        "timer late median ms": statistics.median(late) * 1000,
        "timer late worst ms": max(late) * 1000,
    }


def _memory_mib(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def work(path: str) -> None:
    """Be the worker."""

    async def main() -> None:
        async with nl.Runtime(f"sqlite:///{path}") as rt:
            await rt.work()

    asyncio.run(main())


def main() -> None:
    """Measure beside a few and beside many, and print both."""
    options = argparse.ArgumentParser(prog="python -m benchmarks.parked", description="parked runs")
    options.add_argument("--runs", type=int, default=100_000)
    options.add_argument("--work", help=argparse.SUPPRESS)
    asked = options.parse_args()
    if asked.work:
        work(asked.work)
        return
    with tempfile.TemporaryDirectory(prefix=".bench-", dir=Path.cwd()) as folder:
        few, many = measure(Path(folder), 100), measure(Path(folder), asked.runs)
    print(f"{'':24}{'100 parked':>14}{f'{asked.runs:,} parked':>18}")
    for name, value in few.items():
        print(f"{name:24}{value:14.2f}{many[name]:18.2f}")


if __name__ == "__main__":
    main()
