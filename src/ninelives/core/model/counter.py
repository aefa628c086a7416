"""Counters: numbers that only grow, kept in the store, so that a killed process takes none of them along.

`core.rules.counting` lists their names and labels, and says what is counted when.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from ninelives.core.model.run import State

Series = tuple[str, str]
"""A counter's name, and its labels as JSON with sorted keys."""
Counts = Mapping[Series, int]
"""By how much counters grow."""


class Counter(Struct, frozen=True):
    """A counter: its name, its labels and its value."""

    name: str
    labels: dict[str, str]
    value: int


class RunCount(Struct, frozen=True):
    """How many runs of an agent in a queue are in a state."""

    agent: str
    queue: str
    state: State
    runs: int


DECISIONS, READS, RESUMABLE, ONCE, KEYED, TOKENS_IN, TOKENS_OUT = range(7)
"""Positions in a worker's list of plain integers for an agent (`StepCounts`)."""
MODEL_REQUESTS, HEDGES_WON, HEDGES_LOST, HEDGES_REFUSED, FALLBACKS = range(7, 12)
CACHE_EXACT, CACHE_WORDS, CACHE_MEANING, CACHE_MISS, CACHE_TOKENS = range(12, 17)

StepCounts = list[int]
"""What a worker has done for an agent since its session began; see `core.rules.counting.of_steps`."""


def no_steps() -> StepCounts:
    """Return the list of an agent for which nothing was done yet."""
    return [0] * 17
