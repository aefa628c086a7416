"""`python -m tests.servers`: the long form of the outages, with a bar and what they came to.

Exits with 1 when something was violated. `--seed` chooses what is done; the machine chooses when.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from random import SystemRandom

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from tests.crash.stores import place
from tests.fleet.driver import Drive
from tests.proof.report import Report, judged, tell, write
from tests.servers.outages import SERVERS, outages

_COLUMNS = (TextColumn("{task.description:8}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())


def main() -> int:
    """Kill the server of a store; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.servers", description=__doc__)
    parser.add_argument("--store", choices=SERVERS, default="postgresql")
    parser.add_argument("--kills", type=int, default=50, help="how often the server is killed")
    parser.add_argument("--seed", type=int, default=SystemRandom().randrange(2**32))
    parser.add_argument("--report", type=Path)
    given = parser.parse_args()
    console = Console(highlight=False)
    console.print(f"seed {given.seed} on {given.store}")
    server = SERVERS[given.store]()
    began = time.monotonic()
    try:
        with (
            tempfile.TemporaryDirectory(prefix="outages-") as made,
            Progress(*_COLUMNS, console=console, disable=not console.is_terminal) as bar,
            Drive(place(Path(made), server.url), seed=given.seed, processes=2, lease_seconds=5.0) as drive,
        ):
            task = bar.add_task("kills", total=given.kills)
            report = outages(drive, server, given.kills, lambda done: bar.update(task, completed=done))
    finally:
        server.remove()
    seconds = time.monotonic() - began
    numbers = (
        f"server killed {report.kills} times in {seconds:.0f} s under {report.workers} workers:"
        f" {report.runs} runs, {report.acknowledged} commits acknowledged, {report.begun} bodies begun,"
        f" {report.again} of them again, {len(report.violations)} violations"
    )
    section = tell(judged("the server killed under load", numbers, report.violations, kills=report.kills))
    again = f"python -m tests.servers --store {given.store} --kills {given.kills} --seed {given.seed}"
    write(given.report, Report(again=again, store=given.store, seconds=round(seconds), sections=[section]))
    for violation in report.violations[:50]:
        console.print(violation, markup=False)
    return int(bool(report.violations))


if __name__ == "__main__":
    sys.exit(main())
