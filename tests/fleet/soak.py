"""`python -m tests.fleet.soak`: many runs for a while, with kills, and what the processes hold meanwhile.

The supervisor and one worker whom nobody kills are watched: after a while of warming up, neither their memory
nor their open files may grow. The others are killed, so that deaths and takeovers are part of what they do.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from random import SystemRandom
from statistics import median

from msgspec import Struct

from tests.crash.stores import DURABLE, scratch
from tests.fleet.driver import Drive
from tests.fleet.judge import judge
from tests.fleet.ledger import Fact
from tests.proof import report as proof

_LOOK_SECONDS, _KILL_SECONDS = 0.5, 4.0
_MORE_FILES, _MORE_MEGABYTES, _MORE_PART = 8, 8.0, 0.15


class Sample(Struct, frozen=True):
    """What a process holds at a moment."""

    megabytes: float
    files: int


def sample(pid: int) -> Sample:
    """Look at a process. Raises OSError when it is gone."""
    status = Path(f"/proc/{pid}/status").read_text()
    kilobytes = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))
    return Sample(kilobytes / 1024, len(os.listdir(f"/proc/{pid}/fd")))


def growth(who: str, samples: list[Sample]) -> tuple[str, list[str]]:
    """Compare the second quarter with the last one; returns the figures, and what has grown."""
    quarter = max(1, len(samples) // 4)
    early, late = samples[quarter : 2 * quarter] or samples, samples[-quarter:]
    memory = [median(one.megabytes for one in some) for some in (early, late)]
    files = [median(one.files for one in some) for some in (early, late)]
    held = [f"{size:.1f} MB, {count:.0f} files" for size, count in zip(memory, files, strict=True)]
    told = f"{who} {held[0]}, at the end {held[1]}"
    has_grown = (
        memory[1] > memory[0] * (1 + _MORE_PART) + _MORE_MEGABYTES or files[1] > files[0] + _MORE_FILES
    )
    return told, [told] if has_grown else []


def soak(drive: Drive, seconds: float) -> proof.Result:
    """Work and kill for so long; returns what came of it."""
    supervisor = drive.start_supervisor()
    drive.wait_until(lambda: drive.log_count("is ready") >= drive.processes, "workers")
    spared = drive.workers()[0]
    held: dict[str, list[Sample]] = {"supervisor": [], "worker": []}
    began = time.monotonic()
    next_look = next_kill = began
    kills = 0
    while (now := time.monotonic()) < began + seconds:
        drive.feed()
        if now >= next_look:
            held["supervisor"].append(sample(supervisor.pid))
            held["worker"].append(sample(spared))
            next_look += _LOOK_SECONDS
        if now >= next_kill:
            kills += _kill_another(drive, spared)
            next_kill += _KILL_SECONDS
    drive.finish()
    drive.news()
    violations = judge(drive.entries, drive.expected, drive.results())
    told = [f"{len(drive.expected)} runs in {seconds:.0f} s, {kills} kills"]
    for who, samples in held.items():
        line, grown = growth(who, samples)
        told.append(line)
        violations += grown
    return proof.judged("memory and open files stay flat", "; ".join(told), violations, kills=kills)


def _kill_another(drive: Drive, spared: int) -> int:
    others = [pid for pid in drive.workers() if pid != spared]
    if not others:
        return 0
    pid = drive.random.choice(others)
    drive.ledger.write(Fact.KILLED, step="at any moment", pid=pid)
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    return 1


def main() -> int:
    """Soak a fleet; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.fleet.soak", description=__doc__)
    parser.add_argument("--store", choices=DURABLE, default="sqlite")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=SystemRandom().randrange(2**32))
    parser.add_argument("--report", type=Path)
    given = parser.parse_args()
    again = (
        f"python -m tests.fleet.soak --store {given.store} --seconds {given.seconds:g} --seed {given.seed}"
    )
    print(f"seed {given.seed} (repeat with: {again})", flush=True)
    began = time.monotonic()
    with (
        scratch(given.store, in_memory=False) as home,
        Drive(home, seed=given.seed, processes=3, lease_seconds=5.0) as drive,
    ):
        section = proof.tell(soak(drive, given.seconds))
    spent = round(time.monotonic() - began)
    told = proof.Report(again=again, store=given.store, seconds=spent, sections=[section])
    proof.write(given.report, told)
    return int(told.is_violated)


if __name__ == "__main__":
    sys.exit(main())
