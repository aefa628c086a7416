"""Runs that the store says are this session's, and that nothing here executes.

A claim whose answer never came, or a server that forgot the last second, leaves such a run: its session
lives, so nobody takes it over, and it would stay `running` without end. Now and then a worker compares what
the store says it owns with what it executes, and gives the difference back. A run is given back when it was
seen like that twice without a change in between. Giving back is a commit on the condition of its epoch,
length and head: whatever moved it meanwhile wins. If we die here: it is released with all that is ours.
"""

from __future__ import annotations

import logging
from collections.abc import Set as AbstractSet

from ninelives.core.errors import Corrupt
from ninelives.core.model.commit import Commit, Outcome, Park
from ninelives.core.model.run import RunQuery, RunRow, State
from ninelives.store import Store

_MOST = 10_000
_LOOKS_PER_LEASE = 3
_log = logging.getLogger("ninelives.worker")
_GIVEN_BACK = (
    "run %s belonged to this worker's session, which did not execute it: the answer to a claim was lost,"
    " or the store's server has forgotten something; it is given back, and is due at once"
)


class Stranded:
    """Finds and gives back what one session owns and does not execute."""

    def __init__(self, store: Store, session: str, lease_ms: int) -> None:
        self._store, self._session, self._pause_ms = store, session, lease_ms / _LOOKS_PER_LEASE
        self._look_at_ms = 0.0
        self._seen: dict[str, tuple[int, int, bytes]] = {}

    def look(self, executed: AbstractSet[str], now_ms: int) -> None:
        """Compare, if it is time. No run may be claimed for the session until this returns.

        Raises StoreUnavailable.
        """
        if now_ms < self._look_at_ms:
            return
        try:
            owned = self._store.list_runs(
                RunQuery(session=self._session, states=(State.RUNNING,), limit=_MOST)
            )
        except Corrupt:
            owned = []  # whoever reads the damaged one reports it
        idle = {run.id: run for run in owned if run.id not in executed}
        left = [run for run in idle.values() if self._seen.get(run.id) == _state(run)]
        self._seen = {run.id: _state(run) for run in idle.values()}
        self._look_at_ms = 0.0 if idle else now_ms + self._pause_ms
        if left:
            self._give_back(left)

    def _give_back(self, left: list[RunRow]) -> None:
        batch = [
            Commit(run=run.id, epoch=run.epoch, length=run.length, head=run.head, change=_park(run))
            for run in left
        ]
        for verdict in self._store.commit(batch):
            if verdict.outcome is Outcome.COMMITTED:
                _log.warning(_GIVEN_BACK, verdict.run)


def _state(run: RunRow) -> tuple[int, int, bytes]:
    return run.epoch, run.length, run.head


def _park(run: RunRow) -> Park:
    return Park(due_ms=0, waits="for a worker", news_seen=run.news)
