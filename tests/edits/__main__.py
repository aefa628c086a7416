"""`python -m tests.edits`: random agents, random edits of their source, kills between; judged from outside.

A red pair prints both sources, the ledger, and the one command that shows it again. Exits with 1 when
anything was wrong.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections import Counter
from pathlib import Path
from random import SystemRandom

from tests.crash.stores import scratch
from tests.edits.campaign import Red, red_of, shrunk
from tests.edits.judge import judge
from tests.edits.pairs import History, pair_of, perform
from tests.edits.processes import EditServer, Processes, hurried
from tests.proof.report import Report, Result, judged, tell, write


def main() -> int:
    """Perform so many pairs, or one that failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.edits", description=__doc__)
    parser.add_argument("--pairs", type=int, default=2_000, help="how many, in this process")
    parser.add_argument("--processes", type=int, default=0, help="how many, in processes killed by SIGKILL")
    parser.add_argument("--seed", type=int, default=SystemRandom().randrange(2**31))
    parser.add_argument("--pair", type=int, help="perform this pair only")
    parser.add_argument("--report", type=Path)
    asked = parser.parse_args()
    logging.getLogger("ninelives").setLevel(logging.ERROR)
    if asked.pair is not None:
        red = red_of(asked.pair)
        print(red or "green")
        return red is not None
    again = f"python -m tests.edits --pairs {asked.pairs} --processes {asked.processes} --seed {asked.seed}"
    print(again, flush=True)
    began = time.monotonic()
    sections = [_here(asked.seed, asked.pairs)]
    if asked.processes:
        sections.append(_in_processes(asked.seed, asked.processes))
    report = Report(
        again=again, store="memory, sqlite", seconds=round(time.monotonic() - began), sections=sections
    )
    write(asked.report, report)
    return report.is_violated


def _here(seed: int, pairs: int) -> Result:
    began, fates, deaths, red = time.monotonic(), Counter[str](), 0, list[str]()
    for number in range(seed, seed + pairs):
        history = perform(pair_of(number))
        deaths += _count(fates, history)
        if violations := judge(history):
            red.append(str(shrunk(Red(history, violations))))
            print(red[-1], flush=True)
    return _section("random edits of random agents", pairs, began, fates, deaths, red)


def _in_processes(seed: int, pairs: int) -> Result:
    began, fates, deaths, red = time.monotonic(), Counter[str](), 0, list[str]()
    with EditServer() as server:
        for number in range(seed, seed + pairs):
            with scratch() as home:
                history = perform(hurried(pair_of(number)), Processes(server, home))
            deaths += _count(fates, history)
            if violations := judge(history):
                red.append(str(Red(history, violations)))
                print(red[-1], flush=True)
    return _section("random edits, processes killed", pairs, began, fates, deaths, red)


def _count(fates: Counter[str], history: History) -> int:
    for life in history.lives[1:]:
        fates["diverged" if life.diverged else "killed again" if life.died else str(life.state)] += 1
    return sum(life.died for life in history.lives)


def _section(name: str, pairs: int, began: float, fates: Counter[str], deaths: int, red: list[str]) -> Result:
    ends = ", ".join(f"{count} {fate}" for fate, count in fates.most_common())
    numbers = f"{pairs} pairs, {deaths} deaths; {ends}; {len(red)} red"
    spent = time.monotonic() - began
    return tell(judged(name, numbers, red, kills=deaths, seconds=spent))


if __name__ == "__main__":
    sys.exit(main())
