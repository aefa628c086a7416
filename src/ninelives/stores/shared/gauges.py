"""Gauges from the rows that a SQL store's statements return."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from ninelives.core.model.gauges import Gauges, HeldGroup, ItemGroup, LeftGroup, RetryingGroup, RunGroup
from ninelives.core.model.inbox import ItemKind
from ninelives.core.model.run import State
from ninelives.stores.shared.rows import Row, decoding


class CountsRows(Protocol):
    """A transaction that has the statements `gauge_*`."""

    @property
    def now_ms(self) -> int: ...
    def all(self, name: str) -> Iterable[Row]: ...


def counted(tx: CountsRows, used: dict[str, int]) -> Gauges:
    """Count what metrics show. Raises Corrupt for a row that names no state or kind."""

    def rows(name: str) -> Sequence[Row]:
        # Sorted here: databases sort text each in its own way.
        return sorted((tuple(row) for row in tx.all(name)), key=lambda row: [str(value) for value in row[:3]])

    with decoding("a row that metrics count"):
        return Gauges(
            at_ms=tx.now_ms,
            runs=tuple(
                RunGroup(agent=agent, queue=queue, state=State(state), runs=runs, paused=paused, due_ms=due)
                for agent, queue, state, runs, paused, due in rows("gauge_runs")
            ),
            held=tuple(
                HeldGroup(session=session, agent=agent, runs=runs)
                for session, agent, runs in rows("gauge_held")
            ),
            left=tuple(
                LeftGroup(agent=agent, runs=runs, since_ms=since) for agent, runs, since in rows("gauge_left")
            ),
            retrying=tuple(
                RetryingGroup(agent=agent, reason=reason, runs=runs)
                for agent, reason, runs in rows("gauge_retrying")
            ),
            items=tuple(
                ItemGroup(agent=agent, kind=ItemKind(kind), step=step, items=items, opened_ms=opened)
                for agent, kind, step, items, opened in rows("gauge_items")
            ),
            used=used,
        )
