"""W3 and W11: what a run costs beside its steps, and what more processes give."""

from __future__ import annotations

import asyncio
import time
from contextlib import ExitStack
from pathlib import Path

import ninelives as nl
from benchmarks import processes
from benchmarks.cells import Cell, Metric, Round, Workload
from benchmarks.programs import ours

_PATIENCE_SECONDS = 180.0


def short(cell: Cell) -> Round:
    """One-step runs, one after the other and all at once."""
    alone, runs = cell.size["alone"], cell.size["runs"]
    return Round(
        {
            "one after the other": alone / cell.play("singles", runs=alone)["seconds"],
            "at once": runs / cell.play("many", runs=runs, steps=1)["seconds"],
        }
    )


def scaled(cell: Cell) -> Round:
    """The same work by more and more worker processes."""
    got, points = Round(), []
    for workers in cell.size["processes"]:
        url = cell.place.fresh()
        try:
            rate = _rate(cell, url, workers)
        finally:
            cell.place.drop(url)
        got.values[_named(workers)] = rate
        points.append((float(workers), rate))
        cell.advance()
    got.curves["steps/s by worker processes"] = points
    return got


def _rate(cell: Cell, url: str, workers: int) -> float:
    """Return the steps per second of so many processes, from the word to go until the last is idle."""
    runs, steps = int(cell.size["runs"]), int(cell.size["steps"])

    async def start() -> None:
        async with nl.Runtime(url) as rt:
            await asyncio.gather(*(rt.start(ours.sequence, steps, id=f"run-{n}") for n in range(runs)))

    async def ended() -> int:
        async with nl.Runtime(url) as rt:
            return len(await rt.list(status="completed", limit=runs + 1))

    asyncio.run(start())
    words = cell.words("work", url=url, until_idle=1, concurrency=-(-runs // workers))
    with ExitStack() as stack:
        log: Path = cell.folder / "log"
        working = [
            stack.enter_context(
                processes.started(words, log=log, environment=cell.environment(), is_told=True)
            )
            for _ in range(workers)
        ]
        for worker in working:
            assert worker.stdout is not None
            worker.stdout.readline()
        began = time.perf_counter()
        for worker in working:
            assert worker.stdin is not None
            worker.stdin.write(b"\n")
            worker.stdin.flush()
        for worker in working:
            worker.wait(_PATIENCE_SECONDS)
        took = time.perf_counter() - began
    if (done := asyncio.run(ended())) != runs:
        raise processes.Failed(f"{done} of {runs} runs are complete")
    return runs * steps / took


def _named(processes: int) -> str:
    return f"{processes} process" + ("es" if processes > 1 else "")


PROCESSES = (1, 2, 4)

WORKLOADS = (
    Workload(
        "W3",
        "runs",
        "runs of one step: one after the other, and 300 at once",
        short,
        {
            "one after the other": Metric("runs/s", is_rate=True),
            "at once": Metric("runs/s", is_rate=True),
        },
        size={"alone": 50, "runs": 300},
        quick={"alone": 5, "runs": 20},
        has_peers=True,
    ),
    Workload(
        "W11",
        "scaling",
        "400 runs of 20 steps by 1, 2 and 4 worker processes",
        scaled,
        {_named(count): Metric("steps/s", is_rate=True) for count in PROCESSES},
        size={"runs": 400, "steps": 20, "processes": PROCESSES},
        quick={"runs": 20, "steps": 5, "processes": PROCESSES},
        rounds=2,
        curve=("worker processes", "steps/s"),
    ),
)
