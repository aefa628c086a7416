"""`python -m tests.crash`: the long crash programme, with a table at its end and a report in a file.

Exits with 1 when a promise is violated or a planted bug survives. What could not be run is listed as such.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import SystemRandom
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from tests.crash import programme
from tests.crash.programme import Section, at_random, perform, tasks
from tests.crash.stores import BLIND, DURABLE, scratch
from tests.proof import report
from tests.proof.report import Report, Result

DUELS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("forks:misuse", {}),
    ("forks:orphan", {}),
    ("duels:zombie", {}),
    ("duels:zombie", {"parks": True}),
    ("duels:twins", {}),
    ("duels:rivals", {"rounds": 200}),
)


def filed(kills: int) -> tuple[Section, ...]:
    """Return the sections for the store that is a file; some are about what only a file can suffer."""
    few = kills // 5
    return (
        Section("kill at every store call", programme.every_call()),
        Section("random kills on disk, one thread", at_random(few, "inline", in_memory=False)),
        Section("random kills on disk, many runs", at_random(few, "posted", in_memory=False)),
        *in_memory("sqlite", kills - 2 * few),
        Section("stock tools", programme.among_tools(max(20, kills // 9))),
        Section("power cuts", programme.power),
        Section("bit flips and truncation", programme.damage),
        Section("killed while being made", programme.born),
        Section("killed while being migrated", programme.migrated),
        Section("killed while being restored", programme.restored),
        Section("killed at every system call of commits", programme.inside_commits),
        Section("failed syncs", programme.failed_syncs),
        Section("a full disk", tasks(("disk:full", {"rounds": 5}), root=True)),
        Section(
            "limits and lock-outs",
            tasks(
                ("disk:limited", {}),
                ("disk:locked_out", {"end_by": "kill"}),
                ("disk:locked_out", {"end_by": "resume"}),
            ),
        ),
        Section("forks and duels", tasks(*DUELS)),
        Section("four writers", programme.shares, alone=True),
        Section("wake-ups", programme.wakes(6000), alone=True),
    )


def in_memory(store: str, kills: int) -> tuple[Section, ...]:
    """Return the sections of random kills where no disk makes anybody wait."""
    few, runs = kills // 5, 5
    most = (kills - 2 * few) // 2
    return (
        Section("random kills, one thread", at_random(most, "inline", store=store)),
        Section("random kills, many runs at once", at_random(most, "posted", store=store)),
        Section(f"random kills, one thread, {runs} runs", at_random(few, "inline", runs=runs, store=store)),
        Section(f"random kills, {runs} runs at once", at_random(few, "posted", runs=runs, store=store)),
    )


def served(store: str, kills: int) -> tuple[Section, ...]:
    """Return the sections for a store on a server."""
    scenes = [scene for scene in DUELS if store not in BLIND or scene[0] != "forks:orphan"]
    return (
        Section("kill at every store call", programme.every_call(store)),
        *in_memory(store, kills),
        Section("forks and duels", tasks(*scenes, store=store)),
        Section("wake-ups", programme.wakes(2000, store), alone=True),
    )


class Board:
    """Shows what runs: bars on a terminal, a line per section elsewhere."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._talking = threading.Lock()
        columns = (
            TextColumn("{task.description:40}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        self.progress = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)

    def perform(self, section: Section, seed: int) -> Result:
        """Run a section under a bar of its own."""
        bar = self.progress.add_task(section.name, total=None)
        result = perform(
            section, seed, lambda done, total: self.progress.update(bar, completed=done, total=total)
        )
        self.progress.remove_task(bar)
        with self._talking:
            line = f"{result.status:8} {section.name}: {result.numbers} ({result.seconds:.0f} s)"
            self._console.print(line, highlight=False, style="red" if result.status == "violated" else "")
        return result


def main() -> int:
    """Run the programme."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash", description=__doc__)
    parser.add_argument("--seed", type=int, default=SystemRandom().randrange(2**31))
    parser.add_argument("--only", default="", help="run the sections whose name contains this")
    parser.add_argument("--store", choices=DURABLE, default="sqlite")
    parser.add_argument("--kills", type=int, default=2000, help="how many at random")
    parser.add_argument("--report", type=Path, default=Path("build/proof/crash.json"))
    asked = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 160)
    again = f"python -m tests.crash --store {asked.store} --kills {asked.kills} --seed {asked.seed}"
    console.print(f"seed {asked.seed} (repeat with: {again})", highlight=False)
    known = filed(asked.kills) if asked.store == "sqlite" else served(asked.store, asked.kills)
    sections = [section for section in known if asked.only in section.name]
    with scratch(asked.store):  # its server belongs to this thread, and ends with it
        pass
    began = time.monotonic()
    board = Board(console)
    with board.progress, ThreadPoolExecutor(2) as pool:
        together = [section for section in sections if not section.alone]
        results = list(pool.map(lambda section: board.perform(section, asked.seed), together))
        results += [board.perform(section, asked.seed) for section in sections if section.alone]
    seconds = time.monotonic() - began
    told = Report(again=again, store=asked.store, seconds=round(seconds), sections=results)
    report.write(asked.report, told)
    _show(console, results, seconds)
    return any(result.status == "violated" for result in results)


def _show(console: Console, results: list[Result], seconds: float) -> None:
    table = Table("section", "result", "numbers", "s")
    for result in results:
        table.add_row(result.name, result.status, result.numbers, f"{result.seconds:.0f}")
    console.print(table, highlight=False)
    for result in results:
        for violation in result.violations[:5]:
            console.print(f"{result.name}: {violation}", highlight=False, markup=False, style="red")
    kills = sum(result.kills for result in results)
    console.print(f"{kills} kills, {seconds:.0f} s", highlight=False)


if __name__ == "__main__":
    sys.exit(main())
