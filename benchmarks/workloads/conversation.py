"""W5: a conversation that grows: what it takes on disk, and whether a turn takes longer at its end."""

from __future__ import annotations

import statistics

from benchmarks.cells import Cell, Metric, Round, Workload

_WINDOW = 10


def grown(cell: Cell) -> Round:
    """Talk; a turn is a question and its answer, 1 KiB each."""
    turns: list[float] = cell.play("chat", messages=cell.size["messages"])["turns"]
    quarter = max(len(turns) // 4, 1)
    early, late = statistics.median(turns[1 : quarter + 1]), statistics.median(turns[-quarter:])
    windows = [turns[first : first + _WINDOW] for first in range(0, len(turns), _WINDOW)]
    points = [(2.0 * _WINDOW * (n + 1), statistics.median(of) * 1000) for n, of in enumerate(windows)]
    return Round(
        {
            "size": cell.place.size(cell.url) / 1e6,
            "a turn": statistics.median(turns) * 1000,
            "last quarter / first quarter": late / early,
        },
        {"time of a turn as the conversation grows": points},
    )


WORKLOADS = (
    Workload(
        "W5",
        "conversation",
        "a conversation of 400 messages of 1 KiB, a turn for each question and answer",
        grown,
        {
            "size": Metric("MB", is_less_better=True),
            "a turn": Metric("ms", is_less_better=True),
            "last quarter / first quarter": Metric("x", is_less_better=True),
        },
        size={"messages": 400},
        quick={"messages": 40},
        has_peers=True,
        rounds=3,
        curve=("messages", "ms per turn"),
    ),
)
