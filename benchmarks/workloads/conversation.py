"""W5: a conversation that grows: what it takes on disk, and whether it gets slower."""

from __future__ import annotations

import statistics

from benchmarks.cells import Cell, Metric, Round, Workload
from benchmarks.systems import LANGGRAPH, OURS

_WINDOW = 10
_OTHER_WAYS = {OURS.name: ("handed on", "turns"), LANGGRAPH.name: ("delta", "delta")}


def grown(cell: Cell) -> Round:
    """Talk; and again in the other way that a system knows to keep a conversation."""
    got = _talk(cell, cell.url)
    if cell.system.name in _OTHER_WAYS:
        title, way = _OTHER_WAYS[cell.system.name]
        url = cell.place.fresh()
        try:
            other = _talk(cell, url, way)
        finally:
            cell.place.drop(url)
        got.values |= {f"{metric}, {title}": value for metric, value in other.values.items()}
        got.curves |= {f"{metric}, {title}": points for metric, points in other.curves.items()}
    return got


def _talk(cell: Cell, url: str, way: str = "") -> Round:
    ways = {"turns": int(way == "turns"), "delta": int(way == "delta")}
    said = cell.play("chat", url=url, messages=cell.size["messages"], dies=False, **ways)["turns"]
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
        "a conversation of 400 messages of 1 KiB; also with `next_turn` (handed on), as LangGraph's delta",
        grown,
        {
            f"{name}{mode}": metric
            for mode in ("", *(f", {title}" for title, _ in _OTHER_WAYS.values()))
            for name, metric in (("size", _MB), ("an exchange", _MS), ("last quarter / first", _TIMES))
        },
        size={"messages": 400},
        quick={"messages": 40},
        has_peers=True,
        rounds=3,
        curve=("messages", "ms per exchange"),
    ),
)
