"""`python -m tests.people`: every stage of every story, killed before and after every call of the store."""

from __future__ import annotations

import argparse
import sys

from tests.crash.stores import DURABLE
from tests.people.campaign import PeopleServer, kill_everywhere
from tests.people.stories import STORIES


def main() -> int:
    """Play all; returns 1 if anything went wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.people", description=__doc__)
    parser.add_argument("--store", choices=DURABLE, default="sqlite")
    store = parser.parse_args().store
    failed = False
    with PeopleServer() as server:
        for story in STORIES:
            kills = 0
            for verdict in kill_everywhere(server, story, store=store):
                kills += verdict.was_killed
                if verdict.wrong:
                    failed = True
                    print(f"WRONG {verdict}", flush=True)
            print(f"{story}: {kills} kills on {store}", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
