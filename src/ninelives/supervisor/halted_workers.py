"""Which workers of a supervisor must end because of halts that say so (`ninelives halt --kill`).

Each such halt ends, once, the workers that were executing a run that it holds when this supervisor first saw
it. A worker that begins later knows the halt before it begins anything. If the supervisor dies, so do its
workers: the next one has nothing to end.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ninelives.core.errors import NineLivesError
from ninelives.core.model.document import HALTS
from ninelives.core.model.run import RunQuery, State
from ninelives.views import documents

if TYPE_CHECKING:
    from ninelives.governance.halts import Halt
    from ninelives.stores.open import AnyStore

_CHECK_MS = 500
_PAGE = 1_000


class HaltedWorkers:
    """Reads the halts every half second, by one short read as long as nothing has changed."""

    def __init__(self, store: AnyStore, now_ms: int) -> None:
        self._store, self._checked_ms = store, now_ms
        self._version, self._done = 0, set[str]()

    def check(self, sessions: Collection[str], now_ms: int) -> dict[str, Halt]:
        """Return which of these sessions must end, each with its halt."""
        if now_ms - self._checked_ms < _CHECK_MS:
            return {}
        self._checked_ms = now_ms
        try:
            found = documents.find(self._store, HALTS)
            version = found.version if found is not None else 0
            if version == self._version:
                return {}
            ended = self._find(sessions)
        except NineLivesError:
            return {}  # the next renewal reports it, and the next check tries again
        self._version = version
        return ended

    def _find(self, sessions: Collection[str]) -> dict[str, Halt]:
        from ninelives.governance.halts import read_halts

        halts = [one for one in read_halts(self._store, self._store.now_ms()) if one.kills]
        new = [one for one in halts if one.id not in self._done]
        ended: dict[str, Halt] = {}
        query = RunQuery(states=(State.RUNNING,), limit=_PAGE)
        while new and sessions:
            page = self._store.list_runs(query)
            for run in page:
                for halt in new:
                    if run.session is None or run.session not in sessions:
                        continue
                    if halt.fits(run=run.id, agent=run.agent, labels=run.labels):
                        ended[run.session] = halt
            if len(page) < _PAGE:
                break
            query = replace(query, after=page[-1].number)
        # CRASH: our workers die with us; a halt that is not noted here ends none of the next ones.
        self._done.update(one.id for one in halts)
        return ended
