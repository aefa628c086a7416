"""W12: whether steps cost more as the store grows: one run and many, from an empty store to a million steps.

Each time beside it, in the same minute: the same in a store that is empty. What is compared is the speed of
both, in turn; neither the disk's mood nor the neighbours' work are taken for growth. The many runs write
more than SQLite's log holds: what it costs to empty it into a large file is part of the figure.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable

from benchmarks import ground
from benchmarks.cells import Cell, Metric, Points, Round, Workload
from benchmarks.workloads.steps import many_runs, one_run


def grown(cell: Cell) -> Round:
    """Fill the store step by step; at each size, measure one run and many, here and in an empty store."""
    alone: Points = []
    together: Points = []
    filled, steps = 0, cell.size["steps"]
    for size in cell.size["sizes"]:
        _fill(cell, size - filled)
        filled = size
        one, many = [], []
        for turn in range(cell.size["rounds"]):
            empty = cell.place.fresh()
            try:
                one.append(_share(turn, lambda url: one_run(cell, 200, url), cell.url, empty))
                many.append(_share(turn, lambda url: many_runs(cell, 100, steps, url), cell.url, empty))
            finally:
                cell.place.drop(empty)
            cell.advance()
        alone.append((float(max(size, 1)), statistics.median(one)))
        together.append((float(max(size, 1)), statistics.median(many)))
    return Round(
        {"one run": alone[-1][1], "100 runs": together[-1][1]},
        {"one run": alone, "100 runs": together},
    )


def _share(turn: int, measure: Callable[[str], float], full: str, empty: str) -> float:
    """Return the speed in the full store as a share of that in the empty one; who begins alternates."""
    rates = {url: measure(url) for url in ((full, empty) if turn % 2 else (empty, full))}
    return rates[full] / rates[empty]


def _fill(cell: Cell, records: int) -> None:
    bench = ground.Ground(cell.url, 1)
    try:
        ground.fill(bench, records, lambda done: None)
    finally:
        bench.close()


WORKLOADS = (
    Workload(
        "W12",
        "growth",
        "one run of 200 steps, 100 of 100, in a store of up to a million steps, against an empty store",
        grown,
        {"one run": Metric("x of empty"), "100 runs": Metric("x of empty")},
        size={"sizes": (1_000, 10_000, 100_000, 1_000_000), "steps": 100, "rounds": 5},
        quick={"sizes": (0, 1_000, 10_000), "steps": 100, "rounds": 1},
        stores=("sqlite",),
        rounds=1,
        curve=("steps in the store", "x of an empty store"),
    ),
)
