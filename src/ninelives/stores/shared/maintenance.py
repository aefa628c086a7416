"""What operators do with every store: migrate, measure, prune what is old. What they verify is in `walk`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache, partial
from importlib.resources import files
from typing import Any, Generic, TypeVar

from msgspec import Struct

from ninelives.core.errors import SchemaMismatch
from ninelives.core.model.log_entry import LogEntry
from ninelives.core.model.run import RunRow, State
from ninelives.core.model.session import Cause, Session
from ninelives.store import Pruned, Stats

Tx = TypeVar("Tx")
Value = TypeVar("Value")
Answer = TypeVar("Answer")
Transact = Callable[[Callable[[Tx], Any]], Any]
"""Runs something in a transaction, and returns what it returned."""


@cache
def migrations(package: str) -> tuple[str, ...]:
    """Return the migrations of a store that has them as SQL files, in order; the n-th makes version n."""
    folder = files(package).joinpath("migrations")
    named = sorted(
        (file for file in folder.iterdir() if file.name.endswith(".sql")), key=lambda file: file.name
    )
    return tuple(file.read_text(encoding="utf-8") for file in named)


def unknown_version(version: object, least: int, last: int) -> SchemaMismatch:
    """Return the error for a store of a version that this one cannot read."""
    return SchemaMismatch(
        f"the store has schema version {version}; this Nine Lives knows {least} to {last}",
        remedy="Upgrade ninelives, or open the store with the version that wrote it",
    )


def _called(work: Callable[[Tx, Value], Answer], value: Value, tx: Tx) -> Answer:
    return work(tx, value)


def stats_of(counts: Iterable[tuple[str, int]], others: Iterable[int]) -> Stats:
    """Return measures: runs by state, and all the others in the order of `Stats`."""
    runs = dict.fromkeys(State, 0) | {State(state): count for state, count in counts}
    return Stats(runs=runs, **dict(zip(Stats.__struct_fields__[1:], others, strict=True)))


# Prune -------------------------------------------------------------------------------------------
#
# A journal is kept until its run has ended and is older than its agent's limit. The recovery log loses only
# its oldest entries, never one of an open recovery (of a run that was left and has made no progress since).
# It keeps the number and the check at which the rest begins, so the chain still verifies. A session's row
# goes with the log, unless a run names it, or its lease ran out and nothing is known of its process.

AT_ONCE = 200
"""How many entries or sessions one transaction removes at most."""


class Limits(Struct, frozen=True, kw_only=True):
    """Before which moments what may go: journals (of some agents by another limit), rows of runs, the log."""

    ended_before_ms: int
    forget_before_ms: int = 0
    log_before_ms: int = 0
    agents: Mapping[str, int] = {}

    @property
    def of_agents(self) -> dict[str, int]:
        """The limits of journals of agents that have their own; a run is not forgotten with its journal."""
        return {agent: max(before, self.forget_before_ms) for agent, before in self.agents.items()}

    @property
    def of_others(self) -> int:
        """The limit of all other agents' journals."""
        return max(self.ended_before_ms, self.forget_before_ms)

    @property
    def latest(self) -> int:
        """The latest of these limits."""
        return max(self.of_others, *self.of_agents.values(), 0)

    def may_clear(self, run: RunRow) -> bool:
        """Return whether a run's journal may go."""
        return run.state.is_final and run.changed_ms < self.of_agents.get(run.agent, self.of_others)


def is_open(run: RunRow | None) -> bool:
    """Return whether a run's recovery is open: its entries of the log are still needed."""
    return run is not None and not run.state.is_final and run.left_by is not None


def old_entries(oldest: Sequence[LogEntry], before_ms: int, runs: Mapping[str, RunRow]) -> Sequence[LogEntry]:
    """Return which of the oldest entries, in their order, may go; `runs` are the runs that they name."""
    for at, entry in enumerate(oldest):
        if entry.at_ms >= before_ms or is_open(runs.get(entry.run)):
            return oldest[:at]
    return oldest


def is_old_session(session: Session, before_ms: int, named: Collection[str]) -> bool:
    """Return whether a session's row may go; `named` are the sessions that runs name."""
    if session.ended_ms is None or session.ended_ms >= before_ms or session.id in named:
        return False
    return session.cause is not Cause.EXPIRED or session.evidence is not None


class Removal(Struct, Generic[Tx, Value]):
    """How a store removes a part of what is old; each returns nothing when there is no more.

    `clear` returns for each journal how many records and keys went with it; `shorten` continues after a run
    and returns where it got to, or None, and how many records it removed. `spared` reads once which blobs
    journals need although the row that keeps them is lost; `sweep` gets them.
    """

    clear: Callable[[Tx], list[tuple[int, int]]]
    shorten: Callable[[Tx, int], tuple[int | None, int]]
    forget: Callable[[Tx], int]
    spared: Callable[[], Value]
    sweep: Callable[[Tx, Value], int]
    cut: Callable[[Tx], int]
    drop_sessions: Callable[[Tx], int]


def prune(write: Transact[Tx], removal: Removal[Tx, Any]) -> Pruned:
    """Remove journals, turn keys into tombstones, remove blobs; see `Maintenance.prune`."""
    cleared: list[tuple[int, int]] = []
    while part := write(removal.clear):
        cleared += part
    records = sum(removed for removed, _ in cleared)
    after: int | None = 0
    while after is not None:
        after, removed = write(partial(_called, removal.shorten, after))
        records += removed
    return Pruned(
        journals=len(cleared),
        records=records,
        keys=sum(buried for _, buried in cleared),
        runs=_emptied(write, removal.forget),
        # After the runs: what they named is needed no longer.
        entries=_emptied(write, removal.cut),
        sessions=_emptied(write, removal.drop_sessions),
        blobs=_emptied(write, partial(_called, removal.sweep, removal.spared())),
    )


def _emptied(write: Transact[Tx], remove: Callable[[Tx], int]) -> int:
    total = 0
    while gone := write(remove):
        total += gone
    return total
