"""Mutate the load-bearing rooms and judge what survives: `make mutants`.

Ends with 1 when fewer than nine in ten were killed, or one survives that `survivors.toml` does not explain.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.mutation.page import page
from tests.mutation.rooms import ROOMS, Result, last, run
from tests.mutation.survivors import Explained, outdated, read_explained, stanza, unexplained

WANTED_SHARE = 0.9


def main() -> int:
    """Run the rooms, say what became of them, and write the page."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument(
        "--room", action="append", choices=[room.name for room in ROOMS], help="only this one"
    )
    parser.add_argument("--children", type=int, default=os.cpu_count() or 1, help="processes at a time")
    parser.add_argument("--page", type=Path, help="write the page there, of every room's last run")
    asked = parser.parse_args()
    explained, results = read_explained(), []
    for room in ROOMS:
        if not asked.room or room.name in asked.room:
            results.append(run(room, asked.children))
            print(_told(results[-1]), flush=True)
    for one in results:
        for mutant in outdated(one, explained):
            print(f"explained, but killed, or not made any more: take it out\n{stanza(one, mutant)}")
    found = list(faults(results, explained))
    print("\n".join(found))
    known = [result for result in map(last, ROOMS) if result is not None]
    if asked.page:
        asked.page.write_text(page(known, explained))
    return 1 if found else 0


def _told(result: Result) -> str:
    return f"{result.room.name}: {result.killed} of {result.mutants} killed, {result.seconds:.0f} s"


def faults(results: list[Result], explained: Explained) -> Iterator[str]:
    """Yield what makes the whole fail."""
    total, killed = sum(one.mutants for one in results), sum(one.killed for one in results)
    if killed < WANTED_SHARE * total:
        yield f"{killed} of {total} mutants were killed: fewer than {WANTED_SHARE:.0%}"
    for one in results:
        for mutant in unexplained(one, explained):
            yield f"not killed: write a test that notices it, or explain it\n{stanza(one, mutant)}"


if __name__ == "__main__":
    sys.exit(main())
