"""W1, W2 and W13: what a step costs, alone, among others, and hidden behind a model."""

from __future__ import annotations

from benchmarks.cells import Cell, Metric, Round, Workload


def one_run(cell: Cell, steps: int, url: str | None = None) -> float:
    """Return the steps per second of one run, in the cell's store or another."""
    return steps / float(cell.play("sequence", url=url, steps=steps)["seconds"])


def many_runs(cell: Cell, runs: int, steps: int, url: str | None = None) -> float:
    """Return the steps per second of many runs at once."""
    return runs * steps / float(cell.play("many", url=url, runs=runs, steps=steps)["seconds"])


def sequential(cell: Cell) -> Round:
    """One run, one step after the other; ours also pipelined."""
    steps = cell.size["steps"]
    got = Round({"steps": one_run(cell, steps)})
    if cell.system.is_ours:
        took = cell.play("models", steps=steps, milliseconds=0, pipelined=1)["seconds"]
        got.values["pipelined decisions"] = steps / took
    return got


def together(cell: Cell) -> Round:
    """Many runs at once; ours also for so long that SQLite's log is emptied several times."""
    runs = cell.size["runs"]
    got = Round({"steps": many_runs(cell, runs, cell.size["steps"])})
    if cell.system.is_ours:
        got.values["sustained steps"] = many_runs(cell, runs, cell.size["sustained"])
    return got


def hidden(cell: Cell) -> Round:
    """Decisions of a model that takes its time: what is left of our cost, strict and pipelined.

    The model's time is what a bare event loop takes for the same sleeps, in the same process.
    """
    got, steps = Round(), cell.size["steps"]
    for milliseconds in cell.size["milliseconds"]:
        for mode in ("strict", "pipelined"):
            is_pipelined = int(mode == "pipelined")
            said = cell.play("models", steps=steps, milliseconds=milliseconds, pipelined=is_pipelined)
            over = said["seconds"] - said["bare"]
            got.values[f"{mode}, {milliseconds} ms model"] = over / steps * 1000
        cell.advance()
    return got


_STEPS = Metric("steps/s", is_rate=True)
_COST = Metric("ms per step over the model", is_less_better=True)
MODELS = (0, 1, 10)

WORKLOADS = (
    Workload(
        "W1",
        "steps",
        "one run of 200 steps, one after the other",
        sequential,
        {"steps": _STEPS, "pipelined decisions": _STEPS},
        size={"steps": 200},
        quick={"steps": 40},
        has_peers=True,
        rounds=15,  # one lasts a tenth of a second, and a shared machine changes its pace as quickly
    ),
    Workload(
        "W2",
        "together",
        "100 runs of 20 steps at once; ours also of 200 (sustained)",
        together,
        {"steps": _STEPS, "sustained steps": _STEPS},
        size={"runs": 100, "steps": 20, "sustained": 200},
        quick={"runs": 10, "steps": 5, "sustained": 10},
        has_peers=True,
    ),
    Workload(
        "W13",
        "pipelining",
        "what a decision costs beside its model, strict and pipelined",
        hidden,
        {f"{mode}, {ms} ms model": _COST for ms in MODELS for mode in ("strict", "pipelined")},
        size={"steps": 100, "milliseconds": MODELS},
        quick={"steps": 20, "milliseconds": MODELS},
        rounds=2,
    ),
)
