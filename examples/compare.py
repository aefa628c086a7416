"""The same agent three times, killed -9 at random and started again: what does the world see?

    python examples/compare.py --jobs 20 --kills 2

`bare` handles errors with try/except. `saved` also saves its progress in a file after each step, as most
home-made recoveries do. `durable` is the same agent on Nine Lives. Each job asks a model, pays, and writes a
letter. The world is a ledger: a file to which model, bank and post append what they really did.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import ninelives as nl

WAYS = ("bare", "saved", "durable")
LATENCY = 0.02
"""How long the model, the bank and the post take to answer, in seconds; the effect is in the middle."""
LIFE = 4 * LATENCY
"""A kill comes within this time after the agent has begun: a job takes three latencies, and a little more."""


# The world -------------------------------------------------------------------------------------------


def write(what: str, job: str) -> None:
    with Path("ledger").open("a") as ledger:
        ledger.write(f"{what} {job}\n")


async def effect(what: str, job: str) -> str:
    """Do something that the world remembers, over a network that takes its time."""
    await asyncio.sleep(LATENCY / 2)
    write(what, job)
    await asyncio.sleep(LATENCY / 2)
    return f"{what} of {job}"


def was_seen(what: str, job: str) -> bool:
    """Ask the world whether something happened."""
    path = Path("ledger")
    return path.exists() and f"{what} {job}\n" in path.read_text()


# 1. try/except ---------------------------------------------------------------------------------------


async def patiently(what: str, job: str) -> str:
    for _ in range(2):
        try:
            return await effect(what, job)
        except OSError as error:
            print("trying again:", error)
    return await effect(what, job)


async def bare(job: str) -> str:
    print("began", flush=True)
    plan = await patiently("model", job)
    receipt = await patiently("payment", job)
    return f"{plan}, {receipt}, {await patiently('letter', job)}"


# 2. try/except, and progress in a file -------------------------------------------------------------


def load(path: Path) -> dict[str, str]:
    return dict(json.loads(path.read_text())) if path.exists() else {}


def save(path: Path, done: dict[str, str]) -> None:
    draft = path.with_suffix(".tmp")
    draft.write_text(json.dumps(done))
    draft.replace(path)


async def saved(job: str) -> str:
    print("began", flush=True)
    path = Path(f"{job}.json")
    done = load(path)
    for what in ("model", "payment", "letter"):
        if what not in done:
            done[what] = await patiently(what, job)
            save(path, done)
    return ", ".join(done.values())


# 3. Nine Lives ---------------------------------------------------------------------------------------


@nl.decision
async def model(job: str) -> str:
    return await effect("model", job)


def paid(job: str) -> nl.Happened[str] | nl.NotHappened:
    return nl.Happened(f"payment of {job}") if was_seen("payment", job) else nl.NotHappened()


@nl.action(resumable=False, verify=paid)
async def payment(job: str) -> str:
    return await effect("payment", job)


def posted(job: str) -> nl.Happened[str] | nl.NotHappened:
    return nl.Happened(f"letter of {job}") if was_seen("letter", job) else nl.NotHappened()


@nl.action(resumable=False, verify=posted)
async def letter(job: str) -> str:
    return await effect("letter", job)


@nl.agent
async def durable(job: str) -> str:
    print("began", flush=True)
    plan = await model(job)
    receipt = await payment(job)
    return f"{plan}, {receipt}, {await letter(job)}"


# The trial ---------------------------------------------------------------------------------------


def work(way: str, job: str) -> None:
    """Do one job in this process, as a service would that is started again after each crash."""
    if way == "durable":
        nl.run(durable, job, id=job, store="sqlite:///runs.db")
    else:
        asyncio.run({"bare": bare, "saved": saved}[way](job))


def lives(way: str, job: str, home: Path, moments: list[float]) -> int:
    """Start a job, kill it at each of these moments, then let it finish; return how often it was killed."""
    kills = 0
    for moment in [*moments, None]:
        command = [sys.executable, __file__, "--work", way, job]
        with subprocess.Popen(
            command, cwd=home, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        ) as process:
            assert process.stdout is not None
            process.stdout.readline()
            if moment is not None:
                time.sleep(moment)
                process.send_signal(signal.SIGKILL)
            process.communicate()
        if process.returncode == 0:
            return kills
        if process.returncode != -signal.SIGKILL:
            raise SystemExit(f"{way}: {job} ended with {process.returncode}")
        kills += 1
    return kills


def trial(way: str, jobs: int, kills: int, seed: int) -> dict[str, object]:
    """Do all jobs in one way, and count in the ledger what was done twice, or not at all."""
    moments, died = random.Random(seed), 0  # every way is killed at the same moments
    with tempfile.TemporaryDirectory() as directory:
        home = Path(directory)
        for number in range(jobs):
            died += lives(way, f"job-{number}", home, [moments.uniform(0, LIFE) for _ in range(kills)])
        seen = Counter(tuple(line.split()) for line in (home / "ledger").read_text().splitlines())
    wanted = [(what, f"job-{number}") for what in ("model", "payment", "letter") for number in range(jobs)]
    again = {what: sum(seen[one] - 1 for one in wanted if one[0] == what and seen[one]) for what, _ in wanted}
    return {
        "way": way,
        "jobs": jobs,
        "kills": died,
        "model calls paid again": again["model"],
        "payments made twice": again["payment"],
        "letters sent twice": again["letter"],
        "not done": sum(not seen[one] for one in wanted),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=10)
    parser.add_argument("--kills", type=int, default=2, help="kills of each job, if it lives long enough")
    parser.add_argument("--seed", type=int, default=9)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--work", nargs=2, metavar=("WAY", "JOB"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        work(*options.work)
        return
    for way in WAYS:
        found = trial(way, options.jobs, options.kills, options.seed)
        print(
            json.dumps(found)
            if options.json
            else ", ".join(f"{name}: {value}" for name, value in found.items())
        )


if __name__ == "__main__":
    main()
