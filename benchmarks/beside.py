"""`python -m benchmarks.beside`: what a step costs while audit, metrics, backup and replication run.

A worker with four runs at once takes strict steps on SQLite, with retention on all the time, in turns alone
and beside the operators' other commands. Printed are p50 and p99 of a step, their ratios, and the store's
size.
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
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import ninelives as nl

_RUNS_AT_ONCE, _STEPS = 4, 50
_PORT = 29464
_METRICS = f"http://127.0.0.1:{_PORT}/metrics"


@nl.action
async def note(number: int) -> str:
    """Return a small result."""
    return f"{number:0100d}"


@nl.agent
async def steps(count: int) -> list[float]:
    """Take steps one after the other; return what each took, in seconds."""
    took = []
    for number in range(count):
        began = time.perf_counter()
        await note(number)
        took.append(time.perf_counter() - began)
    return took


async def _measured(url: str, seconds: float) -> list[float]:
    """Return what each step took in a worker that is busy for so long."""
    found: list[float] = []
    async with nl.Runtime(url) as runtime:

        async def lane() -> None:
            until = time.monotonic() + seconds
            while time.monotonic() < until:
                found.extend(await runtime.run(steps, _STEPS))

        await asyncio.gather(*(lane() for _ in range(_RUNS_AT_ONCE)))
    return found


_RETENTION = [["store", "retain", "--keep", "60s", "--forget", "60s", "--every", "5s"]]


def _others(folder: Path) -> list[list[str]]:
    return [
        ["metrics", "--port", str(_PORT)],
        ["store", "audit", "--every", "5s"],
        ["store", "replicate", (folder / "copy").as_uri(), "--every", "1s"],
    ]


@contextmanager
def _running(url: str, folder: Path, commands: Sequence[Sequence[str]]) -> Iterator[None]:
    """Run commands until the block ends; all must still run then."""
    environment = {**os.environ, "NINELIVES_STORE": url}
    with (folder / "commands.log").open("ab") as log:
        children = [
            subprocess.Popen([sys.executable, *words], env=environment, stdout=log, stderr=log)
            for words in commands
        ]
        try:
            yield
            ended = [one.args for one in children if one.poll() is not None]
            if ended:
                raise SystemExit(f"ended before its time: {ended}; see {folder / 'commands.log'}")
        finally:
            for one in children:
                one.kill()
                one.wait()


@contextmanager
def _beside(url: str, folder: Path) -> Iterator[None]:
    """Run the operators' other commands, and a scrape and a backup now and then, until the block ends."""
    scrapes = ["-c", _SCRAPES, _METRICS, str(folder / "backup.db")]
    with _running(url, folder, [*_words(_others(folder)), scrapes]):
        _wait_for_metrics()
        yield


def _words(commands: Sequence[Sequence[str]]) -> list[list[str]]:
    return [["-m", "ninelives", *words] for words in commands]


_SCRAPES = """
import subprocess, sys, time, urllib.request
page, backup = sys.argv[1:]
count = 0
while True:
    try:
        urllib.request.urlopen(page, timeout=5).read()
    except OSError:
        pass
    count += 1
    if count % 10 == 0:
        subprocess.run([sys.executable, "-m", "ninelives", "store", "backup", backup], check=True)
    time.sleep(1)
"""


def _wait_for_metrics() -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with suppress(OSError), urllib.request.urlopen(_METRICS, timeout=1):
            return
        time.sleep(0.1)
    raise SystemExit("metrics did not come up")


def _percentiles(took: Sequence[float]) -> tuple[float, float]:
    cuts = statistics.quantiles(took, n=100)
    return cuts[49] * 1e6, cuts[98] * 1e6


def main() -> None:
    """Measure in turns, and print each round and the medians of the ratios."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.beside", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=15.0, help="length of each half of a round")
    parser.add_argument("--minutes", type=float, help="instead of --rounds: as many as fit")
    parser.add_argument("--folder", type=Path, default=Path.cwd(), help="measure the disk that this is on")
    asked = parser.parse_args()
    rounds = asked.rounds if asked.minutes is None else max(1, round(asked.minutes * 30 / asked.seconds))
    ratios: list[tuple[float, float]] = []
    with tempfile.TemporaryDirectory(dir=asked.folder) as name:
        folder, url = Path(name), f"sqlite:///{name}/runs.db"
        asyncio.run(_measured(url, 1.0))
        with _running(url, folder, _words(_RETENTION)):
            for number in range(rounds):
                alone = _percentiles(asyncio.run(_measured(url, asked.seconds)))
                with _beside(url, folder):
                    beside = _percentiles(asyncio.run(_measured(url, asked.seconds)))
                ratios.append((beside[0] / alone[0], beside[1] / alone[1]))
                size = sum(one.stat().st_size for one in folder.glob("runs.db*"))
                print(
                    f"round {number + 1}: p50 {alone[0]:.0f} -> {beside[0]:.0f} us ({ratios[-1][0]:.2f}), "
                    f"p99 {alone[1]:.0f} -> {beside[1]:.0f} us ({ratios[-1][1]:.2f}); store {size:,} bytes",
                    flush=True,
                )
    p50, p99 = (statistics.median(column) for column in zip(*ratios, strict=True))
    print(f"medians of the ratios: p50 {p50:.2f}, p99 {p99:.2f}")


if __name__ == "__main__":
    main()
