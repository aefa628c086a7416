"""`python -m tests.people`: every stage of every story, killed before and after every call of the store."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from random import SystemRandom

from tests.crash.stores import DURABLE
from tests.people.campaign import PeopleServer, kill_everywhere
from tests.people.stories import STORIES
from tests.proof.report import Report, Result, judged, tell, write


def main() -> int:
    """Play all; returns 1 if anything went wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.people", description=__doc__)
    parser.add_argument("--store", choices=DURABLE, default="sqlite")
    parser.add_argument("--every", type=int, default=1, help="kill at one in so many places")
    parser.add_argument("--seed", type=int, default=SystemRandom().randrange(2**31), help="which of them")
    parser.add_argument("--report", type=Path)
    asked = parser.parse_args()
    began, store, sections = time.monotonic(), asked.store, list[Result]()
    every, seed = asked.every, asked.seed
    which = "every call" if every == 1 else f"calls, at one in {every} places"
    with PeopleServer() as server:
        for story in STORIES:
            kills, wrong = 0, list[str]()
            for verdict in kill_everywhere(server, story, store=store, every=every, offset=seed):
                kills += verdict.was_killed
                if verdict.wrong:
                    wrong.append(str(verdict))
                    print(f"WRONG {verdict}", flush=True)
            numbers = f"{kills} kills before and after {which}, {len(wrong)} wrong"
            sections.append(tell(judged(f"asked and answered: {story}", numbers, wrong, kills=kills)))
    again = f"python -m tests.people --store {store} --every {every} --seed {seed}"
    told = Report(again=again, store=store, seconds=round(time.monotonic() - began), sections=sections)
    write(asked.report, told)
    return int(told.is_violated)


if __name__ == "__main__":
    sys.exit(main())
