"""W9: from nothing to a finished run of one step; what the import and the installation take."""

from __future__ import annotations

from benchmarks.cells import Cell, Metric, Round, Workload, statement_seconds, usual_seconds


def cold(cell: Cell) -> Round:
    """Start processes that do one run and end; then such that only import; then look at the disk."""
    imported = statement_seconds(cell, f"import {cell.system.imports}")
    return Round(
        {
            "process to finished run": usual_seconds(lambda: _once(cell)),
            "import": imported - statement_seconds(cell),
            "installed": cell.play("weight")["bytes"] / 1e6,
        }
    )


def _once(cell: Cell) -> float:
    """Return how long a process lives that does one run in a store which nobody has used."""
    url = cell.place.fresh()
    try:
        return cell.ended("once", url=url).seconds
    finally:
        cell.place.drop(url)


_SECONDS = Metric("s", is_less_better=True)

WORKLOADS = (
    Workload(
        "W9",
        "cold",
        "a cold process to a finished run of one step; import; size of the installation",
        cold,
        {
            "process to finished run": _SECONDS,
            "import": _SECONDS,
            "installed": Metric("MB", is_less_better=True),
        },
        size={},
        quick={},
        has_peers=True,
        rounds=2,
    ),
)
