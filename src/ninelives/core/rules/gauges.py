"""Gauges: what metrics show of a store, counted from rows. SQL stores count the same by statements."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import TypeVar

from ninelives.core.model.gauges import Gauges, HeldGroup, ItemGroup, LeftGroup, RetryingGroup, RunGroup
from ninelives.core.model.inbox import Item
from ninelives.core.model.run import RunRow, State
from ninelives.core.model.session import Cause, Session
from ninelives.core.model.totals import read_retrying

WAITING = (State.PENDING, State.CHECKPOINTED)
Row = TypeVar("Row")
Name = TypeVar("Name", bound=Hashable)


def is_unrecovered(run: RunRow) -> bool:
    """Return whether a run that its worker left has written nothing since, and is not paused."""
    # An intent counts: the run has been replayed and does something new, however long that takes.
    is_left = run.left_by is not None and not run.state.is_final and not run.paused
    return is_left and (run.session is None or run.length <= run.death_length)


def counted(
    at_ms: int,
    runs: Iterable[RunRow],
    sessions: Mapping[str, Session],
    items: Iterable[tuple[str, Item]],
    used: dict[str, int],
) -> Gauges:
    """Return the gauges of these unfinished runs and open items (each with its run's agent).

    `sessions` are those that left a run.
    """
    live = [run for run in runs if not run.state.is_final]
    dead = [
        (run.agent, since.ended_ms or 0)
        for run in live
        if is_unrecovered(run)
        and (since := sessions.get(run.left_by or "")) is not None
        and since.cause is not Cause.STOPPED
    ]
    retrying = [
        (run.agent, known.reason if (known := read_retrying(run.retrying)) is not None else "")
        for run in live
        if run.retrying
    ]
    return Gauges(
        at_ms=at_ms,
        runs=tuple(
            _run_group(agent, queue, state, rows)
            for (agent, queue, state), rows in _grouped(live, lambda run: (run.agent, run.queue, run.state))
        ),
        held=tuple(
            HeldGroup(session=session, agent=agent, runs=len(rows))
            for (session, agent), rows in _grouped(
                (run for run in live if run.session is not None), lambda run: (run.session or "", run.agent)
            )
        ),
        left=tuple(
            LeftGroup(agent=agent, runs=len(rows), since_ms=min(since for _, since in rows))
            for agent, rows in _grouped(dead, lambda row: row[0])
        ),
        retrying=tuple(
            RetryingGroup(agent=agent, reason=reason, runs=len(rows))
            for (agent, reason), rows in _grouped(retrying, lambda row: row)
        ),
        items=tuple(
            ItemGroup(
                agent=agent,
                kind=kind,
                step=step,
                items=len(rows),
                opened_ms=min(item.opened_ms for _, item in rows),
            )
            for (agent, kind, step), rows in _grouped(items, lambda row: (row[0], row[1].kind, row[1].step))
        ),
        used=used,
    )


def _run_group(agent: str, queue: str, state: State, rows: list[RunRow]) -> RunGroup:
    due = [run.due_ms for run in rows if run.due_ms is not None and not run.paused and run.state in WAITING]
    return RunGroup(
        agent=agent,
        queue=queue,
        state=state,
        runs=len(rows),
        paused=sum(run.paused for run in rows),
        due_ms=min(due, default=None),
    )


def _grouped(rows: Iterable[Row], name: Callable[[Row], Name]) -> list[tuple[Name, list[Row]]]:
    found: dict[Name, list[Row]] = {}
    for row in rows:
        found.setdefault(name(row), []).append(row)
    return sorted(found.items(), key=lambda group: group[0])  # type: ignore[arg-type,return-value]
