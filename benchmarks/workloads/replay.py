"""W6: how fast a process comes back to where a long run stood."""

from __future__ import annotations

from benchmarks.cells import Cell, Metric, Round, Workload


def replayed(cell: Cell) -> Round:
    """Take many steps in one process; in another, time from its claim until all are behind it again."""
    steps = cell.size["steps"]
    cell.play("long", steps=steps)
    return Round({"steps replayed": steps / cell.play("long", steps=steps, again=1)["seconds"]})


WORKLOADS = (
    Workload(
        "W6",
        "replay",
        "replay of 10,000 steps of 1 KiB, loaded and verified, in a fresh process",
        replayed,
        {"steps replayed": Metric("steps/s")},
        size={"steps": 10_000},
        quick={"steps": 500},
        rounds=2,
    ),
)
