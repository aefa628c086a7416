"""How long recovery takes: runs killed in step 11 of 20, from the start of the next process to all complete.

`python -m benchmarks.recovery [--runs 100] [--rounds 1] [--directory DIR] [--peer]`. Beside it: what it takes
to start an interpreter with the package; what counts is the difference. `--peer` measures DBOS on SQLite in
the same rounds, in a virtual environment of its own under build/.
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
from pathlib import Path

import ninelives as nl
from ninelives.backends.open import open_store
from ninelives.core.model import RunQuery, State

STEPS, KILLED_IN = 20, 10
ROOT = Path(__file__).parents[1]
PEER = ROOT / "build" / "peer"
_arrived = _moved = 0


@nl.action
async def work(number: int, runs: int) -> int:
    """Do nothing much; in the first life, wait in step 11 for all the others, and die."""
    global _arrived  # noqa: PLW0603
    if number == KILLED_IN and os.environ.get("DIE"):
        _arrived += 1
        if _arrived == runs:
            os.kill(os.getpid(), signal.SIGKILL)
        await asyncio.Event().wait()
    return number


@nl.agent
async def twenty(runs: int) -> int:
    """Do twenty steps; say when all runs have come further than where they died."""
    global _moved  # noqa: PLW0603
    total = 0
    for number in range(STEPS):
        total += await work(number, runs)
        if number == KILLED_IN:
            _moved += 1
            if _moved == runs:
                print(time.perf_counter(), flush=True)
    return total


async def live(url: str, runs: int) -> None:
    """Start the runs, or go on with them, until nothing is left."""
    async with nl.Runtime(url) as rt:
        if os.environ.get("DIE"):
            await asyncio.gather(*(rt.start(twenty, runs, id=f"run-{number}") for number in range(runs)))
        await rt.work(concurrency=runs, until_idle=True)


def _spawn(*words: str, dies: bool = False, python: str = sys.executable) -> tuple[float, float]:
    """Return the seconds until the process had ended, and until what it said."""
    environment = {**os.environ, **({"DIE": "1"} if dies else {})}
    began = time.perf_counter()
    ended = subprocess.run([python, *words], cwd=ROOT, env=environment, stdout=subprocess.PIPE, check=False)
    took = time.perf_counter() - began
    assert ended.returncode == (-signal.SIGKILL if dies else 0), ended
    return took, float(ended.stdout) - began if ended.stdout else took


def measure(directory: Path, runs: int) -> dict[str, float]:
    """Kill, recover, and return the figures in seconds."""
    url = f"sqlite:///{directory}/recovery.db"
    words = ("-m", "benchmarks.recovery", "--live", url, "--runs", str(runs))
    _spawn(*words, dies=True)
    recovered, moved = _spawn(*words)
    bare = min(_spawn("-c", "import benchmarks.recovery")[0] for _ in range(3))
    store = open_store(url)
    assert len(store.list_runs(RunQuery(states=(State.COMPLETED,), limit=runs + 1))) == runs
    store.close()
    return {
        "start to all moved": moved,
        "start to all complete": recovered,
        "interpreter": bare,
        "recovery": recovered - bare,
    }


def peer() -> str:
    """Return the interpreter of the peer's environment, which is made when it is not there."""
    python = PEER / "bin" / "python"
    if not (PEER / "ready").exists():
        subprocess.run([sys.executable, "-m", "venv", str(PEER)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", "dbos"], check=True)
        (PEER / "ready").touch()
    return str(python)


def measure_peer(directory: Path, runs: int, python: str) -> dict[str, float]:
    """Do the same with DBOS."""
    words = ("benchmarks/peer.py", str(directory / "peer.db"), str(runs))
    _spawn(*words, dies=True, python=python)
    recovered, _ = _spawn(*words, python=python)
    bare = min(_spawn("-c", "import dbos", python=python)[0] for _ in range(3))
    return {
        "DBOS: start to complete": recovered,
        "DBOS: interpreter": bare,
        "DBOS: recovery": recovered - bare,
    }


def main() -> None:
    """Measure, or live one life."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--directory", type=Path)
    parser.add_argument("--peer", action="store_true", help="DBOS beside it")
    parser.add_argument("--live", metavar="URL")
    given = parser.parse_args()
    if given.live:
        asyncio.run(live(given.live, given.runs))
        return
    python = peer() if given.peer else None
    rounds: list[dict[str, float]] = []
    for _ in range(given.rounds):
        with tempfile.TemporaryDirectory(dir=given.directory) as directory:
            figures = measure(Path(directory), given.runs)
            if python is not None:
                figures |= measure_peer(Path(directory), given.runs, python)
        rounds.append(figures)
    for name in rounds[0]:
        print(f"{name:24}{statistics.median(one[name] for one in rounds):8.3f} s")


if __name__ == "__main__":
    from benchmarks.recovery import main as entry  # the agents are named by their module

    entry()
