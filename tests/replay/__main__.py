"""`python -m tests.replay`: random programs, killed at random, for as long as you like.

A failing case prints the one command that runs it again. Exits with 1 when anything was wrong.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from random import Random, SystemRandom

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from tests.proof.report import Report, judged, tell, write
from tests.replay.campaign import Case, cases_of, perform
from tests.replay.lives import Kill


def main() -> int:
    """Run programs until the time is over, or one case that failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.replay", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=SystemRandom().randrange(2**31))
    parser.add_argument("--program", type=int, help="run this program only")
    parser.add_argument("--kills", default="", help="its kills, as before:N,after:N,round:N")
    parser.add_argument("--times", type=int, default=20, help="how often (threads take turns as they like)")
    parser.add_argument("--report", type=Path)
    asked = parser.parse_args()
    if asked.program is not None:
        return _again(asked.program, asked.kills, asked.times)
    return _campaign(asked.seed, asked.seconds, asked.report)


def _again(seed: int, kills: str, times: int) -> int:
    parts = [part.split(":") for part in kills.split(",") if ":" in part]
    case = Case(seed, tuple(Kill(at, int(count)) for at, count in parts))  # type: ignore[arg-type]
    red = [verdict for _ in range(times) if (verdict := perform(case)).violations]
    print(red[0] if red else f"{times} times green")
    return bool(red)


def _campaign(seed: int, seconds: float, path: Path | None) -> int:
    console, rng = Console(width=None if sys.stdout.isatty() else 160), Random(seed)
    console.print(f"seed {seed} (repeat with: python -m tests.replay --seed {seed})", highlight=False)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    began, programs, cases, deaths = time.monotonic(), 0, 0, 0
    red: list[str] = []
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        bar = progress.add_task("programs", total=seconds)
        while (spent := time.monotonic() - began) < seconds:
            programs += 1
            for verdict in cases_of(rng.randrange(2**40), rng, sweep=6, random=3):
                cases += 1
                deaths += len(verdict.deaths)
                if verdict.violations:
                    red.append(str(verdict))
                    console.print(str(verdict), highlight=False, markup=False, style="red")
            progress.update(
                bar, completed=spent, description=f"{programs} programs, {deaths} deaths, {len(red)} red"
            )
    numbers = f"{programs} programs, {cases} cases, {deaths} deaths, {len(red)} red"
    section = tell(judged("random programs, killed at every call and round", numbers, red, kills=deaths))
    again = f"python -m tests.replay --seed {seed} --seconds {seconds:g}"
    write(path, Report(again=again, store="memory", seconds=round(spent), sections=[section]))
    return bool(red)


if __name__ == "__main__":
    sys.exit(main())
