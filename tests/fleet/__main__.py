"""`python -m tests.fleet`: the long form, with a bar, the histogram of windows, and the violations.

Exits with 1 when an invariant was violated. `--seed` chooses what is done; the machine chooses when.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from random import SystemRandom

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from tests.crash.stores import DURABLE, scratch
from tests.fleet.driver import Drive
from tests.fleet.jumps import jumps
from tests.fleet.nemesis import Report, Tick, kills, zombies
from tests.proof import report as proof

_COLUMNS = (TextColumn("{task.description:8}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
_WHAT = {
    "kills": "workers and supervisors killed",
    "zombies": "workers stopped past their lease, and woken",
    "jumps": "workers whose wall clocks jump",
}


def main() -> int:
    """Do what was asked; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.fleet", description=__doc__)
    parser.add_argument("--kills", type=int, default=1000, help="how many kills")
    parser.add_argument("--zombies", type=int, default=200, help="how many wake-ups past the lease")
    parser.add_argument("--jumps", type=int, default=40, help="how many jumps of the workers' clocks")
    parser.add_argument("--processes", type=int, default=3, help="workers of each supervisor")
    parser.add_argument("--store", choices=DURABLE, default="sqlite")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--report", type=Path)
    given = parser.parse_args()
    seed = given.seed if given.seed is not None else SystemRandom().randrange(2**32)
    console = Console()
    console.print(f"seed {seed} on {given.store}")
    began, sections = time.monotonic(), list[proof.Result]()
    for name, count, lease_seconds, nemesis in (
        ("kills", given.kills, 5.0, kills),
        ("zombies", given.zombies, 0.5, zombies),
        ("jumps", given.jumps, 5.0, jumps),
    ):
        if count > 0:
            report = perform(console, name, count, lease_seconds, nemesis, given.processes, seed, given.store)
            sections.append(proof.tell(_section(name, report)))
    again = f"python -m tests.fleet --store {given.store} --kills {given.kills} --zombies {given.zombies}"
    again += f" --jumps {given.jumps}"
    spent = round(time.monotonic() - began)
    told = proof.Report(again=f"{again} --seed {seed}", store=given.store, seconds=spent, sections=sections)
    proof.write(given.report, told)
    return int(told.is_violated)


def _section(name: str, report: Report) -> proof.Result:
    numbers = f"{report.done} {name}, {report.runs} runs, {len(report.violations)} violations"
    kills = report.done if name == "kills" else 0
    return proof.judged(_WHAT[name], numbers, report.violations, kills=kills, windows=report.windows)


def perform(
    console: Console,
    name: str,
    count: int,
    lease_seconds: float,
    nemesis: Callable[[Drive, int, Tick], Report],
    processes: int,
    seed: int,
    store: str,
) -> Report:
    """Do one thing to a fleet, under a bar, and show what came of it."""
    began = time.monotonic()
    with (
        scratch(store, in_memory=False) as home,
        Progress(*_COLUMNS, console=console, disable=not console.is_terminal) as bar,
        Drive(home, seed=seed, processes=processes, lease_seconds=lease_seconds) as drive,
    ):
        task = bar.add_task(name, total=count)
        report = nemesis(drive, count, lambda done: bar.update(task, completed=done))
    show(console, name, report, time.monotonic() - began)
    return report


def show(console: Console, name: str, report: Report, seconds: float) -> None:
    """Print a report."""
    table = Table(title=f"{report.done} {name} in {seconds:.0f} s, {report.runs} runs", title_justify="left")
    table.add_column("window")
    table.add_column("times", justify="right")
    for window, times in sorted(report.windows.items(), key=lambda pair: -pair[1]):
        table.add_row(window, str(times))
    console.print(table)
    console.print(f"{report.held_up} stops taken back, for a lock of the store was held")
    console.print(f"{len(report.violations)} violations")
    for violation in report.violations[:50]:
        console.print(violation)


if __name__ == "__main__":
    sys.exit(main())
