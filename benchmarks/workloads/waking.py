"""W7: how long after a person's yes a run goes on, given in one process, waited for in another."""

from __future__ import annotations

from benchmarks import processes
from benchmarks.cells import Cell, Metric, Round, Workload
from benchmarks.figures import percentile


def woken(cell: Cell) -> Round:
    """Approve runs that are parked, one after the other."""
    runs = cell.size["runs"]
    words, log = cell.words("work", runs=runs), cell.folder / "log"
    with processes.started(words, log=log, environment=cell.environment()):
        waits = [wait * 1000 for wait in cell.play("waking", runs=runs)["waits"]]
    return Round({"p50": percentile(waits, 50), "p99": percentile(waits, 99)})


_MS = Metric("ms", is_less_better=True)

WORKLOADS = (
    Workload(
        "W7",
        "waking",
        "from an approval in one process until the run goes on in another, 60 times",
        woken,
        {"p50": _MS, "p99": _MS},
        size={"runs": 60},
        quick={"runs": 5},
        has_peers=True,
        rounds=2,
    ),
)
