"""`python -m tests.replication --trials 100`: lose machines, and compare measured and stated loss."""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

from tests.replication.trials import Outcome, trial
from tests.servers.s3 import Seaweed


def main() -> int:
    """Run the trials; return 1 if one lost more than was stated."""
    options = argparse.ArgumentParser()
    options.add_argument("--trials", type=int, default=100)
    options.add_argument("--seed", type=int, default=0)
    given = options.parse_args()
    server = Seaweed()
    done: list[Outcome] = []
    try:
        for seed in range(given.seed, given.seed + given.trials):
            with tempfile.TemporaryDirectory(prefix="ninelives-trial-") as home:
                done.append(trial(server, Path(home), seed))
            one = done[-1]
            print(
                f"seed {one.seed}: {one.kills} kills, {one.commits} commits, {one.lost} lost,"
                f" {one.measured_seconds:.2f} s measured, {one.stated_seconds:.2f} s stated"
                + "".join(f"\n  FAULT {fault}" for fault in one.faults),
                flush=True,
            )
    finally:
        server.remove()
    bad = [one for one in done if one.faults or one.measured_seconds > one.stated_seconds]
    print(
        f"{len(done)} trials, {sum(one.kills for one in done)} kills,"
        f" {sum(one.commits for one in done)} commits:"
        f" {len(bad)} lost more than stated; measured loss median"
        f" {statistics.median(one.measured_seconds for one in done):.2f} s, most"
        f" {max(one.measured_seconds for one in done):.2f} s; stated median"
        f" {statistics.median(one.stated_seconds for one in done):.2f} s, most"
        f" {max(one.stated_seconds for one in done):.2f} s"
    )
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
