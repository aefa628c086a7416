"""`python -m tests.simulation`: many seeds in virtual time, with a table of what they came by.

A red seed prints the one command that shows it again, and the fewest faults with which it is still red.
Exits with 1 when a promise was violated or something was never come by.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from tests.proof.report import Report, Result, judged, tell, write
from tests.simulation.campaign import Tally, run_all
from tests.simulation.coverage import EXPECTED, missing
from tests.simulation.shrinking import shrink
from tests.simulation.simulation import simulate

_AT_ONCE, _PER_PROCESS = 10, 200
"""What seeds leave behind is looked through again and again: a process that has had many gets slow."""


def main() -> int:
    """Run seeds, or show one."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--report", type=Path, default=Path("build/proof/simulation.json"))
    parser.add_argument("--seed", type=int, help="run this one only")
    parser.add_argument("--trace", action="store_true", help="show all that happens in it")
    asked = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 160)
    if asked.seed is not None:
        return _one(console, asked.seed, trace=asked.trace)
    return _many(console, asked.first, asked.seeds, asked.processes, asked.report)


def _one(console: Console, seed: int, *, trace: bool) -> int:
    report = simulate(seed)
    if trace:
        for line in report.trace:
            print(line)
    console.print(
        f"seed {seed}: {report.runs} runs, {report.operations} operations, {report.deaths} deaths, "
        f"{report.seconds:.1f} simulated seconds, trace {report.digest}",
        highlight=False,
    )
    for fault in report.plan:
        console.print(f"  plan: {fault}", highlight=False, markup=False)
    for violation in report.violations:
        console.print(violation, highlight=False, markup=False, style="red")
    if report.violations:
        console.print("the fewest faults with which it is still red:", highlight=False)
        for fault in shrink(report):
            console.print(f"  {fault}", highlight=False, markup=False)
    return bool(report.violations)


def _many(console: Console, first: int, seeds: int, processes: int, path: Path) -> int:
    began, whole = time.monotonic(), Tally()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        bar = progress.add_task("seeds", total=seeds)
        for tally in _tallies(first, seeds, processes):
            whole.join(tally)
            for red in tally.red:
                console.print(red, highlight=False, markup=False, style="red")
            progress.update(bar, completed=whole.seeds, description=f"seeds, {len(whole.red)} red")
    seconds = time.monotonic() - began
    _show(console, whole, seconds)
    again = f"python -m tests.simulation --first {first} --seeds {seeds}"
    sections = [tell(section) for section in _sections(whole)]
    told = Report(again=again, store="simulated", seconds=round(seconds), sections=sections)
    write(path, told)
    return int(told.is_violated)


def _sections(tally: Tally) -> list[Result]:
    numbers = (
        f"{tally.seeds} seeds, {tally.runs} runs, {tally.operations} operations, {tally.deaths} deaths, "
        f"{tally.seconds:.0f} simulated seconds, {len(tally.red)} red"
    )
    never = [f"never come by: {what}" for what in missing(tally.covered)]
    rarest = min(EXPECTED, key=lambda what: tally.covered[what])
    covered = (
        f"{len(EXPECTED)} transitions and faults come by, the rarest {tally.covered[rarest]} times ({rarest})"
    )
    return [
        judged("seeds in virtual time", numbers, tally.red, kills=tally.deaths),
        judged("what they came by", covered, never),
    ]


def _tallies(first: int, seeds: int, processes: int) -> Iterator[Tally]:
    """Run seeds in processes that are renewed from time to time."""
    for some in _parts(range(first, first + seeds), processes * _PER_PROCESS):
        with ProcessPoolExecutor(processes) as pool:
            for part in as_completed([pool.submit(run_all, few) for few in _parts(some, _AT_ONCE)]):
                yield part.result()


def _parts(seeds: range, length: int) -> Iterator[range]:
    for start in range(0, len(seeds), length):
        yield seeds[start : start + length]


def _show(console: Console, tally: Tally, seconds: float) -> None:
    table = Table("come by", "times")
    for what in EXPECTED:
        times = tally.covered[what]
        table.add_row(what, str(times), style="" if times else "red")
    console.print(table, highlight=False)
    console.print(
        f"{tally.seeds} seeds, {len(tally.red)} red: {tally.runs} runs, {tally.operations} operations, "
        f"{tally.deaths} deaths, {tally.seconds:.0f} simulated seconds, {seconds:.0f} s",
        highlight=False,
    )


if __name__ == "__main__":
    sys.exit(main())
