"""W10: how long runs stand still when the worker that has them is killed -9, and another one is there.

Two worker processes, some runs in mid-step. The one that has most of them is killed; measured is the time
until the last of its runs begins its step again in the other process. Then a new worker takes its place.
"""

from __future__ import annotations

import asyncio
import os
import signal
import statistics
import subprocess
import time
from collections.abc import Callable
from contextlib import ExitStack

import ninelives as nl
from benchmarks import processes
from benchmarks.cells import Cell, Metric, Round, Workload
from benchmarks.figures import percentile
from benchmarks.programs import ours
from ninelives.store import Store
from ninelives.stores.open import open_store

_PATIENCE_SECONDS = 60.0


class Fleet:
    """Worker processes on one store, and the ledger that their steps are noted in."""

    def __init__(self, cell: Cell, store: Store, stack: ExitStack) -> None:
        self._cell, self._store, self._stack = cell, store, stack
        self.ledger = cell.folder / f"ledger-{os.urandom(4).hex()}"
        self.ledger.touch()
        self._workers: dict[int, subprocess.Popen[bytes]] = {}
        self._read = 0
        self._last: dict[str, tuple[int, int, int]] = {}

    def add(self) -> None:
        """Start a worker and wait until it is at work."""
        environment = {**self._cell.environment(), "BENCH_LEDGER": str(self.ledger)}
        words, log = self._cell.words("work"), self._cell.folder / "log"
        started = processes.started(words, log=log, environment=environment)
        worker = self._stack.enter_context(started)
        self._workers[worker.pid] = worker
        wait_until(lambda: any(one.pid == worker.pid for one in self._store.list_sessions()))

    def look(self) -> dict[str, tuple[int, int, int]]:
        """Read what is new in the ledger; returns of each run when its last step began, which, and where."""
        with self.ledger.open("rb") as file:
            file.seek(self._read)
            new = file.read()
        whole = new.rfind(b"\n") + 1
        self._read += whole
        for line in new[:whole].splitlines():
            at, run, step, pid = line.split()
            self._last[run.decode()] = (int(at), int(step), int(pid))
        return self._last

    def move(self) -> None:
        """Wait until every run has come two steps further: none is suspected of the last death."""
        goal = {run: step + 2 for run, (_, step, _) in self.look().items()}
        wait_until(lambda: all(step >= goal[run] for run, (_, step, _) in self.look().items()))

    def kill(self) -> float:
        """Kill who has most of the runs; returns the milliseconds until the last of them begins again."""
        victim = statistics.mode(pid for _, _, pid in self.look().values())
        orphans = [run for run, (_, _, pid) in self._last.items() if pid == victim]
        killed = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        os.kill(victim, signal.SIGKILL)
        self._workers.pop(victim).wait()
        wait_until(lambda: all(pid != victim for _, _, pid in self.look().values()))
        return max(self._last[run][0] - killed for run in orphans) / 1e6


def wait_until(condition: Callable[[], object]) -> None:
    """Wait until something holds. Raises Failed."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise processes.Failed(f"nothing after {_PATIENCE_SECONDS:.0f} s")
        time.sleep(0.005)


def taken_over(cell: Cell) -> Round:
    """Kill again and again."""
    runs, trials = cell.size["runs"], cell.size["trials"]

    async def start() -> None:
        async with nl.Runtime(cell.url) as rt:
            await asyncio.gather(*(rt.start(ours.toil, 0, id=f"run-{n}") for n in range(runs)))

    asyncio.run(start())
    store = open_store(cell.url)
    waits = []
    try:
        with ExitStack() as stack:
            fleet = Fleet(cell, store, stack)
            fleet.add()
            wait_until(lambda: len(fleet.look()) == runs)
            for _ in range(trials):
                fleet.add()
                fleet.move()
                waits.append(fleet.kill())
                cell.advance()
    finally:
        store.close()
    ranked = [(float(share), percentile(waits, share)) for share in (1, *range(5, 100, 5), 99, 100)]
    return Round(
        {"p50": percentile(waits, 50), "p99": percentile(waits, 99), "worst": max(waits)},
        {"time until a dead worker's runs go on": ranked},
    )


_MS = Metric("ms", is_less_better=True)

WORKLOADS = (
    Workload(
        "W10",
        "takeover",
        "kill -9 of a worker until the last of its 10 runs goes on elsewhere, 100 times",
        taken_over,
        {"p50": _MS, "p99": _MS, "worst": _MS},
        size={"runs": 10, "trials": 100},
        quick={"runs": 4, "trials": 5},
        rounds=1,
        curve=("share of the trials, %", "ms"),
    ),
)
