"""`python -m tests.people`: every stage of every story, killed before and after every call of the store."""

from __future__ import annotations

import sys

from tests.people.campaign import PeopleServer, kill_everywhere
from tests.people.stories import STORIES


def main() -> int:
    """Play all; returns 1 if anything went wrong."""
    failed = False
    with PeopleServer() as server:
        for story in STORIES:
            kills = 0
            for verdict in kill_everywhere(server, story):
                kills += verdict.was_killed
                if verdict.wrong:
                    failed = True
                    print(f"WRONG {verdict}", flush=True)
            print(f"{story}: {kills} kills", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
