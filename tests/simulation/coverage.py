"""What seeds must come by: each transition of a run, a key and a start, each kind of record, each fault."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from ninelives.core.model import transitions
from ninelives.core.model.key import Key
from ninelives.core.model.run import Kind
from ninelives.core.rules import dedup
from tests.simulation.ledger import Event, Fact
from tests.simulation.plan import Strike

Covered = Counter[str]
_ELSEWHERE = {Kind.FORKED, Kind.SALVAGED}
"""Forks and damaged journals have suites of their own."""
_BY_OPERATORS = {transitions.Event.DEPART, transitions.Event.RETURN}
"""Moves to another store have a suite of their own, too."""
_KEYS = (
    "none → reserved",
    "free → reserved",
    "settled → reserved",
    "pruned → reserved",
    "reserved → settled",
    "reserved → free",
    "reserved → in doubt",
    "reserved → orphaned",
    "in doubt → settled",
    "in doubt → free",
    "in doubt → orphaned",
    "orphaned → in doubt",
    "settled → pruned",
)
_STARTS = (
    "none → intent",
    "none → doubt",
    "intent → result",
    "intent → voided",
    "intent → doubt",
    "doubt → doubt",
    "doubt → result",
    "doubt → voided",
    "doubt → failure",
    "voided → intent",
    "voided → failure",
)
EXPECTED = (
    *(f"run: {state} + {event}" for state, event in transitions.TABLE if event not in _BY_OPERATORS),
    *(f"key: {change}" for change in _KEYS),
    *(f"start: {change}" for change in _STARTS),
    *(f"record: {kind}" for kind in Kind if kind not in _ELSEWHERE | {Kind.CREATED}),
    *(f"fault: {strike}" for strike in Strike),
)


class _Table(dict[Any, Any]):
    """The table of run states, which counts what is looked up."""

    def __init__(self, covered: Covered) -> None:
        super().__init__(transitions.TABLE)
        self._covered = covered

    def __getitem__(self, key: Any) -> Any:
        after = super().__getitem__(key)
        self._covered[f"run: {key[0]} + {key[1]}"] += 1
        return after


@contextmanager
def watching(covered: Covered) -> Iterator[None]:
    """Count the transitions of runs and keys for as long as this lasts."""

    def watched(rule: Callable[..., Any]) -> Callable[..., Any]:
        def judged(known: Key | None, *args: Any) -> Any:
            after = rule(known, *args)
            if isinstance(after, Key):
                covered[f"key: {known.state if known else 'none'} → {after.state}"] += 1
            return after

        return judged

    with ExitStack() as stack:
        stack.enter_context(patch.object(transitions, "TABLE", _Table(covered)))
        for name in ("reserved", "changed", "orphaned", "pruned"):
            stack.enter_context(patch.object(dedup, name, watched(getattr(dedup, name))))
        yield


def of_ledger(events: Iterable[Event], protected: frozenset[str]) -> Covered:
    """Count the kinds of records, and the transitions of starts of steps that must not be repeated."""
    covered: Covered = Counter()
    standing: dict[tuple[str, int, str], str] = {}
    for event in events:
        if event.fact is not Fact.RECORDED:
            continue
        covered[f"record: {event.name}"] += 1
        place = event.run, event.turn, event.step
        if event.name in _OF_A_START and _name(event.step) in protected:
            covered[f"start: {standing.get(place, 'none')} → {event.name}"] += 1
            standing[place] = event.name
    return covered


def _name(step: str) -> str:
    """Return the name of a step; of what is no step's, nothing."""
    parts = step.split("#")
    return parts[1] if len(parts) == 3 else ""


_OF_A_START = frozenset({Kind.INTENT, Kind.DOUBT, Kind.VOIDED, Kind.RESULT, Kind.FAILURE})


def missing(covered: Covered) -> list[str]:
    """Return what no seed has come by."""
    return [what for what in EXPECTED if not covered[what]]
