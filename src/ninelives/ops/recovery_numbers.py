"""The four numbers of recovery: how fast, how often something was begun again, how sound, how many.

Of the last day, from the recovery log; what is not yet recovered, from the gauges; rates over all time, from
the counters.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from ninelives.core.errors import Corrupt
from ninelives.core.journal.recovery_log import Recovery
from ninelives.core.model.gauges import LeftGroup
from ninelives.core.model.log_entry import Happening, LogEntry
from ninelives.core.rules.counting import outcome_of

if TYPE_CHECKING:
    from ninelives.stores.open import AnyStore

SLOW_MS = 30_000
_HOUR_MS, _DAY_MS = 3_600_000, 86_400_000
_PAGE, _MOST = 1_000, 10_000
_BODIES = ("decision", "read", "resumable")


class RecoveryNumbers(Struct, frozen=True, kw_only=True):
    """Recoveries of the last day: how many, how fast, how sound. `redone_ratio` is over all time.

    `recovered` are those that went on by themselves, and `rate` their share of those that came to an outcome,
    as in the metrics. `redone` counts bodies that were begun again, `settled` actions that were settled
    first.
    """

    recoveries: int
    recovered: int
    p99_seconds: float | None
    slow_last_hour: int
    redone: int
    settled: int
    redone_ratio: float
    verified: int
    faults: int
    lost: int
    rate: float | None
    unrecovered: int
    unrecovered_seconds: int
    fault: str = ""


def recovery_numbers(store: AnyStore, now_ms: int, left: Iterable[LeftGroup]) -> RecoveryNumbers:
    """Read the numbers. A damaged log is a `fault`, and counts as one."""
    found: list[tuple[int, Recovery]] = []
    fault = ""
    try:
        found += [
            (entry.at_ms, msgspec.json.decode(entry.body, type=Recovery))
            for entry in _entries(store, now_ms - _DAY_MS)
            if entry.kind is Happening.RECOVERED
        ]
    except Corrupt as error:
        fault = error.what
    took = sorted(one.stood_still_ms for _, one in found if one.stood_still_ms is not None)
    outcomes = Counter(outcome_of(one) for _, one in found)
    recovered, decided = outcomes["recovered"], outcomes.total() - outcomes[""]
    open_groups = list(left)
    oldest_ms = min((group.since_ms for group in open_groups), default=now_ms)
    return RecoveryNumbers(
        recoveries=len(found),
        recovered=recovered,
        p99_seconds=took[math.ceil(len(took) * 0.99) - 1] / 1000 if took else None,
        slow_last_hour=sum(_is_slow(at_ms, one, now_ms) for at_ms, one in found),
        redone=sum(one.redone_kinds.get(kind, 0) for _, one in found for kind in _BODIES),
        settled=sum(
            number for _, one in found for kind, number in one.redone_kinds.items() if kind not in _BODIES
        ),
        redone_ratio=_ratio(store),
        verified=sum(not one.verified.faults for _, one in found),
        faults=sum(bool(one.verified.faults) for _, one in found) + bool(fault),
        lost=outcomes["lost"],
        rate=recovered / decided if decided else None,
        unrecovered=sum(group.runs for group in open_groups),
        unrecovered_seconds=max(0, now_ms - oldest_ms) // 1000,
        fault=fault,
    )


def _is_slow(at_ms: int, one: Recovery, now_ms: int) -> bool:
    return (one.stood_still_ms or 0) > SLOW_MS and at_ms > now_ms - _HOUR_MS


def _entries(store: AnyStore, since_ms: int) -> Iterator[LogEntry]:
    before = None
    for _ in range(_MOST // _PAGE):
        page = store.read_log(before=before, limit=_PAGE)
        for entry in page:
            if entry.at_ms < since_ms:
                return
            yield entry
        if len(page) < _PAGE:
            return
        before = page[-1].seq


def _ratio(store: AnyStore) -> float:
    """Return how many of all executed bodies were begun again."""
    redone = done = 0
    for one in store.read_counters():
        if one.name == "steps_redone" and one.labels.get("kind") in _BODIES:
            redone += one.value
        elif one.name in ("decisions", "actions"):
            done += one.value
    return redone / done if done else 0.0
