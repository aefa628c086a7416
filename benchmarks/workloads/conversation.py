"""W5: a conversation that grows: what it takes on disk, and whether it gets slower."""

from __future__ import annotations

import statistics

from benchmarks.cells import Cell, Metric, Round, Workload

_WINDOW = 10


def grown(cell: Cell) -> Round:
    """Talk; ours in one turn, and again with every exchange handed on as a turn of its own."""
    got = _talk(cell, cell.url, turns=0)
    if cell.system.is_ours:
        url = cell.place.fresh()
        try:
            handed_on = _talk(cell, url, turns=1)
        finally:
            cell.place.drop(url)
        got.values |= {f"{name}, handed on": value for name, value in handed_on.values.items()}
        got.curves |= {f"{title}, handed on": points for title, points in handed_on.curves.items()}
    return got


def _talk(cell: Cell, url: str, turns: int) -> Round:
    said = cell.play("chat", url=url, messages=cell.size["messages"], turns=turns)["turns"]
    quarter = max(len(said) // 4, 1)
    early, late = statistics.median(said[1 : quarter + 1]), statistics.median(said[-quarter:])
    windows = [said[first : first + _WINDOW] for first in range(0, len(said), _WINDOW)]
    points = [(2.0 * _WINDOW * (n + 1), statistics.median(of) * 1000) for n, of in enumerate(windows)]
    return Round(
        {
            "size": cell.place.size(url) / 1e6,
            "an exchange": statistics.median(said) * 1000,
            "last quarter / first": late / early,
        },
        {"an exchange": points},
    )


_MB = Metric("MB", is_less_better=True)
_MS = Metric("ms", is_less_better=True)
_TIMES = Metric("x", is_less_better=True)

WORKLOADS = (
    Workload(
        "W5",
        "conversation",
        "a conversation of 400 messages of 1 KiB; also with `next_turn` after every exchange",
        grown,
        {
            f"{name}{mode}": metric
            for mode in ("", ", handed on")
            for name, metric in (("size", _MB), ("an exchange", _MS), ("last quarter / first", _TIMES))
        },
        size={"messages": 400},
        quick={"messages": 40},
        has_peers=True,
        rounds=3,
        curve=("messages", "ms per exchange"),
    ),
)
