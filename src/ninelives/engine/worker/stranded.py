"""Stranded runs: owned by this session according to the store, but not executed here.

A claim whose answer was lost, or a server that lost its last second, leaves such a run: its session is alive,
so no worker takes it over, and it would stay `running` indefinitely. Several times per lease a worker
compares the runs that the store says it owns with those it executes, and gives the difference back. A run is
given back after two such checks without a change in between. Giving back is a commit conditional on epoch,
length and head: any concurrent change wins. If we die here, the run is released with all others of our
session.
"""

from __future__ import annotations

import logging
from collections.abc import Set as AbstractSet

from ninelives.core.errors import Corrupt
from ninelives.core.model.commit import Commit, Outcome, Park
from ninelives.core.model.run import RunQuery, RunRow, State
from ninelives.store import Store

_MOST = 10_000
_CHECKS_PER_LEASE = 3
_log = logging.getLogger("ninelives.worker")
_GIVEN_BACK = (
    "run %s belonged to this worker's session, which did not execute it: the answer to a claim was lost,"
    " or the store's server has forgotten something; it is given back, and is due at once"
)


class Stranded:
    """Finds and gives back the runs that one session owns and does not execute."""

    def __init__(self, store: Store, session: str, lease_ms: int) -> None:
        self._store, self._session, self._pause_ms = store, session, lease_ms / _CHECKS_PER_LEASE
        self._check_at_ms = 0.0
        self._seen: dict[str, tuple[int, int, bytes]] = {}

    def check(self, executed: AbstractSet[str], now_ms: int) -> None:
        """Compare, if a check is due. No run may be claimed for the session until this returns.

        Raises StoreUnavailable.
        """
        if now_ms < self._check_at_ms:
            return
        try:
            owned = self._store.list_runs(
                RunQuery(session=self._session, states=(State.RUNNING,), limit=_MOST)
            )
        except Corrupt:
            owned = []  # the worker that reads the damaged run reports it
        idle = {run.id: run for run in owned if run.id not in executed}
        # Twice in the same state: a run whose claim is just being answered is not given back.
        left = [run for run in idle.values() if self._seen.get(run.id) == _state(run)]
        self._seen = {run.id: _state(run) for run in idle.values()}
        # With a suspicion, check at the next poll: such a run waits for nothing else.
        self._check_at_ms = 0.0 if idle else now_ms + self._pause_ms
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
