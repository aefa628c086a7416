"""W12: whether steps cost more as the store grows: W1 and W2 in one store, from empty to a million steps.

The raw limit is measured before and after each of them, in a fresh file or table: what changes is our
cost, not the disk's mood.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable

from benchmarks import ground
from benchmarks.cells import Cell, Metric, Points, Round, Workload
from benchmarks.workloads.steps import many_runs, one_run

_RAW_COMMITS = 200


def grown(cell: Cell) -> Round:
    """Fill the store step by step; at each size, measure one run and many."""
    alone: Points = []
    together: Points = []
    filled = 0
    for size in cell.size["sizes"]:
        _fill(cell, size - filled)
        filled = size
        one, many = [], []
        for _ in range(cell.size["rounds"]):
            one.append(_ratio(cell, lambda at: one_run(at, 200)))
            many.append(_ratio(cell, lambda at: many_runs(at, 100, 20)))
            cell.advance()
        alone.append((float(max(size, 1)), statistics.median(one)))
        together.append((float(max(size, 1)), statistics.median(many)))
    return Round(
        {"one run": alone[-1][1] / alone[0][1], "100 runs": together[-1][1] / together[0][1]},
        {"one run, in raw commits": alone, "100 runs, in raw commits": together},
    )


def _fill(cell: Cell, records: int) -> None:
    bench = ground.Ground(cell.url, 1)
    try:
        ground.fill(bench, records, lambda done: None)
    finally:
        bench.close()


def _ratio(cell: Cell, measure: Callable[[Cell], float]) -> float:
    before = cell.place.limit(_RAW_COMMITS)
    rate = measure(cell)
    return rate / ((before + cell.place.limit(_RAW_COMMITS)) / 2)


WORKLOADS = (
    Workload(
        "W12",
        "growth",
        "W1 and W2 in a store that grows from empty to a million steps, against the raw limit",
        grown,
        {"one run": Metric("x of empty"), "100 runs": Metric("x of empty")},
        size={"sizes": (0, 10_000, 100_000, 1_000_000), "rounds": 5},
        quick={"sizes": (0, 1_000, 10_000), "rounds": 1},
        stores=("sqlite",),
        rounds=1,
        curve=("steps in the store", "x raw commits"),
    ),
)
