"""W4: runs killed in step 11 of 20, from the start of the next process until all are complete."""

from __future__ import annotations

from benchmarks.cells import Cell, Metric, Round, Workload, statement_seconds


def recovered(cell: Cell) -> Round:
    """Kill a life in step 11 of all its runs; time the next one from its first instruction to its end."""
    runs = cell.size["runs"]
    cell.play("twenty", dies=True, runs=runs)
    took = cell.ended("twenty", runs=runs).seconds
    return Round({"start to all done": took, "without the interpreter": took - statement_seconds(cell)})


_SECONDS = Metric("s", is_less_better=True)

WORKLOADS = (
    Workload(
        "W4",
        "recovery",
        "100 runs killed in step 11 of 20, from process start until all are complete",
        recovered,
        {"start to all done": _SECONDS, "without the interpreter": _SECONDS},
        size={"runs": 100},
        quick={"runs": 10},
        has_peers=True,
        rounds=3,
    ),
)
