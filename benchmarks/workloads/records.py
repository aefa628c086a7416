"""W0: records through the committer into a store, nothing of an agent yet: speed and space."""

from __future__ import annotations

from benchmarks import ground
from benchmarks.cells import Cell, Metric, Round, Workload


def recorded(cell: Cell) -> Round:
    """Commit one record at a time, then a hundred writers at once; then look at the disk."""
    commits, writers, each = cell.size["commits"], cell.size["writers"], cell.size["each"]
    bench = ground.Ground(cell.url, writers)
    try:
        alone = ground.alone(bench, commits)
        together = ground.together(bench, bench.tails, each)
    finally:
        bench.close()
    return Round({"alone": alone, "100 writers": together, "bytes on disk": _space(cell, commits * 10)})


def _space(cell: Cell, records: int) -> float:
    """Return the bytes on disk for each record of 1 KiB."""
    sizes = []
    for count in (0, records):
        url = cell.place.fresh()
        bench = ground.Ground(url, 1)
        ground.fill(bench, count, lambda done: None)
        bench.close()
        sizes.append(cell.place.size(url))
        cell.place.drop(url)
    return (sizes[1] - sizes[0]) / records


_RECORDS = Metric("records/s", is_rate=True)

WORKLOADS = (
    Workload(
        "W0",
        "records",
        "records of 1 KiB through the committer: one per commit, and 100 writers at once",
        recorded,
        {"alone": _RECORDS, "100 writers": _RECORDS, "bytes on disk": Metric("bytes", is_less_better=True)},
        size={"commits": 400, "writers": 100, "each": 40},
        quick={"commits": 20, "writers": 5, "each": 4},
        rounds=3,
    ),
)
