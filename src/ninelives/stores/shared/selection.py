"""Which runs a query or a worker wants."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ninelives.core.model.run import RunQuery, RunRow
from ninelives.core.rules import validation
from ninelives.stores.shared.rows import texts


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
        and query.labels.items() <= run.labels.items()
    )


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
