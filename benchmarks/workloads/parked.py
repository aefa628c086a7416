"""W8: what 100,000 parked runs cost a worker that has nothing to do, and how fast one of them wakes.

One run is parked by a worker; the others get its journal, and are parked through the store itself: rows and
records are those that parking leaves.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import time
from pathlib import Path
from random import Random

import ninelives as nl
from benchmarks import processes
from benchmarks.cells import Cell, Metric, Round, Workload
from benchmarks.figures import percentile
from benchmarks.programs import ours
from ninelives.core.model.commit import Commit, Park
from ninelives.core.model.run import NewRun, Record, RunRow
from ninelives.core.model.session import Cause, NewSession
from ninelives.engine.spec import agent_arguments
from ninelives.engine.spec.registry import get_agent
from ninelives.stores.open import open_store

_BATCH = 2_000
_PATIENCE_SECONDS = 180.0


def parked(cell: Cell) -> Round:
    """Fill a store, start a worker beside it, and look at the worker."""
    park(cell.url, cell.size["runs"], cell)
    began = time.time()
    words = cell.words("work")
    with processes.started(words, log=cell.folder / "log", environment=cell.environment()) as worker:
        looked = asyncio.wait_for(_look(cell, worker.pid, began), _PATIENCE_SECONDS)
        return Round(asyncio.run(looked))


def park(url: str, runs: int, cell: Cell) -> None:
    """Fill a store with parked runs."""
    journal = asyncio.run(_journal(url))
    store, name = open_store(url), get_agent(ours.waiter).name
    try:
        for first in range(0, runs, _BATCH):
            numbers = range(first, min(first + _BATCH, runs))
            store.create_runs([_new(number, journal) for number in numbers])
            session = f"parker-{first}"
            store.register_session(NewSession(id=session, host="bench", pid=os.getpid()))
            claimed = store.claim_runs(session, _BATCH, {name: _BATCH}).runs
            store.commit([_parked(run) for run in claimed])
            store.end_sessions([session], Cause.STOPPED)
            cell.advance()
    finally:
        store.close()


async def _journal(url: str) -> tuple[Record, ...]:
    """Return what a run has recorded since its creation when it waits, from one that does."""
    async with nl.Runtime(url) as rt:
        run = await rt.start(ours.waiter, -1)
        await rt.work(until_idle=True)
        journal = await asyncio.to_thread(rt.store.load_journal, run.id)
    return journal.records[1:]


def _new(number: int, journal: tuple[Record, ...]) -> NewRun:
    agent = get_agent(ours.waiter)
    body, _ = agent_arguments.encode(agent, (number,), {})
    digest = agent.fingerprint((number,), {}).digest
    return NewRun(id=f"w{number}", agent=agent.name, fingerprint=digest, body=body, prefix=journal)


def _parked(run: RunRow) -> Commit:
    change = Park(due_ms=None, waits="for the signal 'go'", news_seen=run.news)
    return Commit(run=run.id, epoch=run.epoch, length=run.length, head=run.head, change=change)


async def _look(cell: Cell, pid: int, began: float) -> dict[str, float]:
    runs, idle_seconds = cell.size["runs"], cell.size["idle_seconds"]
    async with nl.Runtime(cell.url) as rt:
        first = await (await rt.start(ours.fresh)).result()
        memory, before = _memory_mib(pid), _cpu_seconds(pid)
        await asyncio.sleep(idle_seconds)
        idle = (_cpu_seconds(pid) - before) / idle_seconds
        woken = []
        for number in Random(7).sample(range(runs), cell.size["wakes"]):
            run = await rt.get(f"w{number}")
            sent = time.time()
            await run.signal("go")
            woken.append((await run.result() - sent) * 1000)
        sleepers = [await rt.start(ours.sleeper, number) for number in range(10)]
        late = [await run.result() * 1000 for run in sleepers]
    return {
        "worker start": first - began,
        "memory": memory,
        "idle CPU": idle * 100,
        "wake-up p50": statistics.median(woken),
        "wake-up p99": percentile(woken, 99),
        "timer late": statistics.median(late),
    }


def _memory_mib(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


WORKLOADS = (
    Workload(
        "W8",
        "parked",
        "a worker beside 100,000 parked runs (20,000 on a server)",
        parked,
        {
            "worker start": Metric("s", is_less_better=True),
            "memory": Metric("MiB", is_less_better=True),
            "idle CPU": Metric("% of a core", is_less_better=True),
            "wake-up p50": Metric("ms", is_less_better=True),
            "wake-up p99": Metric("ms", is_less_better=True),
            "timer late": Metric("ms", is_less_better=True),
        },
        size={"runs": 100_000, "idle_seconds": 10, "wakes": 40},
        quick={"runs": 500, "idle_seconds": 1, "wakes": 5},
        elsewhere={"runs": 20_000},
        rounds=1,
    ),
)
