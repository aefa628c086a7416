"""Which runs a query or a worker wants."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

import msgspec
from msgspec import Struct

from ninelives.core.errors import UsageError
from ninelives.core.model.capsule import RunMark
from ninelives.core.model.run import RunQuery, RunRow, State
from ninelives.core.rules import validation
from ninelives.stores.shared.rows import Row, texts


def is_possible(query: RunQuery) -> bool:
    """Return whether there can be runs with the names of a query."""
    names = (query.agent, query.session, query.parent, *query.labels, *query.labels.values())
    return all(validation.is_text(name) for name in names if name is not None)


def fits(run: RunRow, query: RunQuery) -> bool:
    """Return whether a run matches a query."""
    return (
        (not query.states or run.state in query.states)
        and query.agent in (None, run.agent)
        and (query.session is None or run.session == query.session)
        and (query.parent is None or run.parent == query.parent)
        and (query.after is None or run.number < query.after)
        and (query.changed_since_ms is None or run.changed_ms >= query.changed_since_ms)
        and query.labels.items() <= run.labels.items()
    )


def is_of_ended(query: RunQuery) -> bool:
    """Return whether a query is for runs that ended since a moment, of any parent and owner."""
    is_wide = query.parent is None and query.session is None and not query.labels
    final = bool(query.states) and all(state.is_final for state in query.states)
    return is_wide and final and query.changed_since_ms is not None


class Wanted:
    """What a worker can take: agents with their quotas, queues, its host.

    With `only`, just that run and its descendants; with `solo`, one suspect and nothing else.
    """

    __slots__ = ("host", "only", "queues", "quotas", "solo")

    def __init__(
        self,
        agents: Mapping[str, int],
        queues: Iterable[str],
        host: str | None = None,
        only: str | None = None,
        *,
        solo: bool = False,
    ) -> None:
        self.quotas = {name: agents[name] for name in texts(agents) if agents[name] > 0}
        self.queues = texts(dict.fromkeys(queues))
        self.host = host if host is None or validation.is_text(host) else None
        self.only = only
        self.solo = solo and only is None

    def fits(self, run: RunRow) -> bool:
        """Return whether an unowned run could be claimed by this worker."""
        return run.agent in self.quotas and run.queue in self.queues and run.pin in (None, self.host)


# Cursors of the change feed ---------------------------------------------------------------------


OVERLAP_MS = 15_000
"""How much earlier than the last time ended runs are listed again: a clock may be set back a little."""
_FINAL = frozenset(state.value for state in State if state.is_final)
Value = TypeVar("Value")


class TimedCursor(Struct, frozen=True, kw_only=True, array_like=True):
    """Where a list of all runs has got to (`after`; None: it is whole), and since when changes are wanted.

    `commits` is the store's count when changes were last listed, if the store has one.
    """

    since_ms: int
    after: int | None = None
    commits: int = -1


def read_cursor(cursor: str, kind: type[Value]) -> Value | None:
    """Return a cursor; None for the empty one. Raises UsageError."""
    if not cursor:
        return None
    try:
        return msgspec.json.decode(cursor, type=kind)
    except msgspec.DecodeError as error:
        raise UsageError(
            "this is no cursor of this store's changes", remedy="Begin with an empty one"
        ) from error


def write_cursor(cursor: Struct) -> str:
    """Return a cursor as text."""
    return msgspec.json.encode(cursor).decode()


def mark_of(row: Row) -> RunMark:
    """Return the mark of a row: id, state, length, head, created_ms, and one or two parts of its stamp."""
    id_, state, length, head, created_ms, *stamp = row
    return RunMark(
        id=id_,
        stamp="".join(part.hex() if isinstance(part, bytes) else str(part) for part in stamp),
        length=length,
        head=head,
        created_ms=created_ms,
        is_final=state in _FINAL,
    )
