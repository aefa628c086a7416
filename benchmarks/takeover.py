"""`python -m benchmarks.takeover`: how long runs stand still when a worker or its supervisor is killed -9.

Two workers, 100 runs in mid-step; then a kill. Measured for each run that the dead worker had, from the kill:
until the step that was under way begins again, and until the run has something new that is durable.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import ninelives as nl

RUNS, STEPS = 100, 200
_PATIENCE_SECONDS = 60.0
_AGENTS = f"""
import asyncio, os, time
import ninelives as nl

LEDGER = os.open("ledger", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

def note(what, step):
    now = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    os.write(LEDGER, f"{{now}} {{what}} {{nl.info().run}} {{step}} {{os.getpid()}}\\n".encode())

@nl.action
async def work(step: int) -> int:
    note("begin", step)
    await asyncio.sleep(0.1)
    return step

@nl.agent
async def worker() -> int:
    for step in range({STEPS}):
        await work(step)
        note("told", step)
    return {STEPS}
"""


class Bench:
    """A directory with a store, a ledger, and supervisors that work on it."""

    def __init__(self, home: Path) -> None:
        self._home, self._url = home, f"sqlite:///{home}/runs.db"
        self.supervisors: list[subprocess.Popen[bytes]] = []
        (home / "agents.py").write_text(_AGENTS, encoding="utf-8")

    def up(self, processes: int) -> subprocess.Popen[bytes]:
        """Start a supervisor."""
        command = [sys.executable, "-m", "ninelives", "worker", "agents.py", "--store", self._url]
        command += ["--processes", str(processes), "--concurrency", str(RUNS)]
        with (self._home / "log").open("ab") as log:
            started = subprocess.Popen(command, cwd=self._home, stdin=subprocess.DEVNULL, stderr=log)
        self.supervisors.append(started)
        return started

    def ready(self, workers: int) -> None:
        """Wait until so many workers are ready."""
        log = self._home / "log"
        wait_until(lambda: log.read_text(encoding="utf-8").count(" is ready (pid ") >= workers)

    def start(self) -> None:
        """Start the runs, and wait until all of them are in mid-step."""

        async def main() -> None:
            async with nl.Runtime(self._url) as runtime:
                await asyncio.gather(*(runtime.start("worker", id=f"run-{n}") for n in range(RUNS)))

        exec(compile(_AGENTS, "agents.py", "exec"), {"__name__": "agents"})
        asyncio.run(main())
        wait_until(lambda: len({line[2] for line in self.ledger() if line[1] == "told"}) == RUNS)

    def ledger(self) -> list[list[str]]:
        """Return what the workers have noted: time, what, run, step, process."""
        path = self._home / "ledger"
        return [line.split() for line in path.read_text().splitlines()] if path.exists() else []

    def stop(self) -> None:
        """Stop all supervisors."""
        for one in self.supervisors:
            one.send_signal(signal.SIGTERM)
            one.wait(_PATIENCE_SECONDS)

    def measure(self, kill: Callable[[str], None]) -> tuple[list[float], list[float]]:
        """Kill who has most of the runs; returns the milliseconds until each begins again, and moves on."""
        last = {line[2]: line[4] for line in self.ledger()}
        victim = statistics.mode(last.values())
        killed = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        kill(victim)
        orphans = {run for run, pid in last.items() if pid == victim}
        begun: dict[str, float] = {}
        moved: dict[str, float] = {}

        def all_moved() -> bool:
            for at, what, run, _, pid in self.ledger():
                late = (int(at) - killed) / 1e6
                if run not in orphans or pid == victim or late < 0:
                    continue
                if what == "begin":
                    begun.setdefault(run, late)
                elif run in begun and late >= begun[run]:  # what came before that was replayed
                    moved.setdefault(run, late)
            return len(moved) == len(orphans)

        wait_until(all_moved)
        return sorted(begun.values()), sorted(moved.values())


def wait_until(condition: Callable[[], object]) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError
        time.sleep(0.02)


def kill_worker(bench: Bench) -> tuple[list[float], list[float]]:
    """One supervisor, two workers; one worker is killed."""
    bench.up(2)
    bench.ready(2)
    bench.start()
    return bench.measure(lambda pid: os.kill(int(pid), signal.SIGKILL))


def kill_supervisor(bench: Bench) -> tuple[list[float], list[float]]:
    """Two supervisors with a worker each; one supervisor is killed."""
    bench.up(1)
    bench.up(1)
    bench.ready(2)
    bench.start()

    def kill(pid: str) -> None:
        parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        os.kill(parent, signal.SIGKILL)
        for one in bench.supervisors:
            if one.pid == parent:
                one.wait()

    return bench.measure(kill)


def kill_all(bench: Bench) -> tuple[list[float], list[float]]:
    """One supervisor, one worker; the supervisor is killed, and the same command typed again."""
    first = bench.up(1)
    bench.ready(1)
    bench.start()

    def kill(_: str) -> None:
        first.kill()
        first.wait()
        bench.up(1)

    return bench.measure(kill)


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.takeover", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    print(f"{'killed':42} {'begins again, ms':>24} {'something new is durable, ms':>32}")
    print(f"{'':42} {'p50   p99   max':>24} {'p50   p99   max':>32}")
    for name, scene in (
        ("a worker of two", kill_worker),
        ("a supervisor of two, with its worker", kill_supervisor),
        ("the only supervisor, started again", kill_all),
    ):
        for _ in range(rounds):
            with tempfile.TemporaryDirectory(prefix="takeover-") as home:
                bench = Bench(Path(home))
                try:
                    begun, moved = scene(bench)
                finally:
                    bench.stop()
            print(f"{name:42} {shown(begun):>24} {shown(moved):>32}")


def shown(values: list[float]) -> str:
    """Write median, 99th percentile and maximum."""
    if not values:
        return "-"
    return "  ".join(
        f"{values[min(len(values) - 1, int(len(values) * share))]:5.0f}" for share in (0.5, 0.99, 1)
    )


if __name__ == "__main__":
    main()
