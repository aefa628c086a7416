"""Retention: remove what is old, once or at an interval, and find what takes the most space.

The work is `Maintenance.prune`: small transactions that may stop anywhere, and that two processes may do at
once. With `repeat`, a document decides which process does it (`ops.periodic`). If we die here: a part is
removed, and the next turn removes the rest.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from msgspec import Struct

from ninelives.core.errors import UnknownRun, UsageError
from ninelives.core.model.run import RunQuery, RunRow
from ninelives.governance.budgets.cleanup import clean
from ninelives.models.upkeep import clean as clean_answers
from ninelives.ops.disk_growth import growth_per_day, note_size
from ninelives.ops.periodic import Periodic, Turn
from ninelives.store import Pruned

_LAPSE_SECONDS = 600.0
_PAGE = 500


class Retention(Struct, frozen=True, kw_only=True):
    """How long what is kept, in milliseconds; `forget_ms` None: rows of runs are kept."""

    keep_ms: int
    agents: Mapping[str, int]
    forget_ms: int | None
    log_ms: int

    def check(self) -> None:
        """Raise UsageError if a run would be forgotten before its journal may go."""
        longest = max(self.keep_ms, *self.agents.values(), 0)
        if self.forget_ms is not None and self.forget_ms < longest:
            raise UsageError(
                "--forget is shorter than --keep or --agent: journals would go with the forgotten runs",
                remedy="Forget runs later than their journals are removed",
            )


class Growth(Struct, frozen=True, kw_only=True):
    """The store's size, and by how many bytes it grows in a day; None until an hour has been seen."""

    bytes: int
    per_day: int | None


class Retained(Struct, frozen=True, kw_only=True):
    """What a turn removed, `accounts` of budgets and cached `answers` too, and the store's size after it."""

    removed: Pruned
    size: Growth
    accounts: int = 0
    answers: int = 0


def size_of(store: Any) -> Growth:
    """Measure the store."""
    used = sum(store.gauges().used.values())
    return Growth(bytes=used, per_day=growth_per_day(store, store.read_clock(), used))


def retain(store: Any, wanted: Retention) -> Retained:
    """Remove what is older than wanted, by the store's clock; of runs, only what the audit log has."""
    now_ms = store.read_clock()
    removed = prune(
        store,
        ended_before_ms=now_ms - wanted.keep_ms,
        forget_before_ms=now_ms - wanted.forget_ms if wanted.forget_ms is not None else 0,
        log_before_ms=now_ms - wanted.log_ms,
        agents={agent: now_ms - keep_ms for agent, keep_ms in wanted.agents.items()},
    )
    # After the runs: the accounts of those that were just forgotten go, too.
    accounts, answers = clean(store, now_ms), clean_answers(store, now_ms)
    size = size_of(store)
    note_size(store, now_ms, size.bytes)
    return Retained(removed=removed, size=size, accounts=accounts, answers=answers)


def prune(
    store: Any,
    *,
    ended_before_ms: int,
    forget_before_ms: int = 0,
    log_before_ms: int = 0,
    agents: Mapping[str, int] | None = None,
) -> Pruned:
    """Prune a store; while its audit log is on, only what that has, and not before it says so."""
    from ninelives.governance.audit_log.pruning import Cutoff, permitted

    wanted = Cutoff(
        ended_before_ms=ended_before_ms, forget_before_ms=forget_before_ms, agents=dict(agents or {})
    )
    cutoff = permitted(store, wanted)
    removed: Pruned = store.prune(
        ended_before_ms=cutoff.ended_before_ms,
        forget_before_ms=cutoff.forget_before_ms,
        log_before_ms=log_before_ms,
        agents=cutoff.agents,
    )
    return removed


def repeat(
    store: Any,
    wanted: Retention,
    every_seconds: float,
    report: Callable[[Retained], None],
    wait: Callable[[float], bool],
) -> None:
    """Do it every so many seconds, in one process at a time, until `wait(seconds)` returns True."""

    def work(turn: Turn) -> None:
        with turn.renewed():  # a first prune of a large store may take hours
            report(retain(store, wanted))

    Periodic(store, "retention", every_seconds, lapse_seconds=_LAPSE_SECONDS).repeat(work, wait)


class Large(Struct, frozen=True, kw_only=True):
    """A run that takes much space: its stored records, and the bytes in them without blobs."""

    run: str
    agent: str
    state: str
    records: int
    bytes: int


def largest(store: Any, count: int) -> list[Large]:
    """Return the runs with the most stored records, the largest first. Reads every run's row."""
    found = heapq.nlargest(count, _rows(store), key=lambda run: (run.length - run.base, run.number))
    return [large for run in found if run.length > run.base and (large := _measured(store, run.id))]


def _measured(store: Any, name: str) -> Large | None:
    """Measure a run as it is now; None if another process has removed it, or its records."""
    try:
        journal = store.load_journal(name, since=0)
    except UnknownRun:
        return None
    run, records = journal.run, journal.records
    if not records:
        return None
    size = sum(len(one.body) for one in records)
    return Large(run=run.id, agent=run.agent, state=run.state.value, records=len(records), bytes=size)


def _rows(store: Any) -> Iterator[RunRow]:
    after: int | None = None
    while page := store.list_runs(RunQuery(limit=_PAGE, after=after)):
        yield from page
        after = page[-1].number
