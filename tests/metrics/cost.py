"""What a scrape costs with 10,000 unfinished runs, on every store: `python -m tests.metrics.cost`."""

from __future__ import annotations

import statistics
import sys
import time

from ninelives.core.model.run import NewRun
from ninelives.ops.metrics.exposition import exposed
from ninelives.ops.metrics.reading import read
from ninelives.store import Store
from tests.crash.stores import DURABLE, open_at, scratch

RUNS, AGENTS, TIMES = 10_000, 5, 15


def fill(store: Store) -> None:
    """Create runs of some agents."""
    for start in range(0, RUNS, 500):
        numbers = range(start, start + 500)
        store.create_runs(
            [NewRun(id=f"r{n}", agent=f"agent{n % AGENTS}", fingerprint=b"f", body=b"{}") for n in numbers]
        )


def main() -> None:
    """Print the median and the worst time of a scrape."""
    for kind in sys.argv[1:] or DURABLE:
        with scratch(kind, in_memory=False) as home:
            store = open_at(home)
            fill(store)
            times, body = [], b""
            for _ in range(TIMES):
                began = time.perf_counter()
                body, _ = exposed(read(store), "", "")  # type: ignore[arg-type]
                times.append((time.perf_counter() - began) * 1000)
            store.close()
        print(
            f"{kind}: {RUNS:,} runs, {statistics.median(times):.0f} ms (median of {TIMES}),"
            f" {max(times):.0f} ms at worst, {len(body):,} bytes"
        )


if __name__ == "__main__":
    main()
