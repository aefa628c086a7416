"""W9: from nothing to a finished run of one step; what the import and the installation take."""

from __future__ import annotations

from benchmarks import processes
from benchmarks.cells import Cell, Metric, Round, Workload

_TRIES = 3


def cold(cell: Cell) -> Round:
    """Start a process that does one run and ends; then one that only imports; then look at the disk."""
    took = min(cell.ended("once").seconds for _ in range(_TRIES))
    bare = min(_seconds(cell, "pass") for _ in range(_TRIES))
    imported = min(_seconds(cell, f"import {cell.system.imports}") for _ in range(_TRIES))
    return Round(
        {
            "process to finished run": took,
            "import": imported - bare,
            "installed": cell.play("weight")["bytes"] / 1e6,
        }
    )


def _seconds(cell: Cell, statement: str) -> float:
    words = [str(cell.system.python), "-c", statement]
    return processes.run(words, log=cell.folder / "log", environment=cell.environment()).seconds


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
