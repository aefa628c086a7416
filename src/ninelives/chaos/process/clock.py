"""Skip the time that runs sleep: a month takes no time, and all processes of a trial agree on the date.

This moves only the clock of the SQLite store, which is this process's own; a server has its own clock. Leases
use another clock and are not shortened. If we die before the skip is written, the next process skips again.
"""

from __future__ import annotations

import os
from pathlib import Path

from ninelives.core.model.run import RunQuery, State
from ninelives.store import Store
from ninelives.stores.clock import SystemClock

_AWAKE = (State.PENDING, State.RUNNING)
_MOST_RUNS = 1_000


class SkippedTime(SystemClock):
    """The clock of a trial: the machine's, and ahead by what was skipped."""

    def __init__(self, home: Path) -> None:
        self._path = home / "skipped"
        self._ms = int(self._path.read_text()) if self._path.exists() else 0

    def now_ms(self) -> int:
        """Return the wall clock time, and what was skipped."""
        return super().now_ms() + self._ms

    def skip(self, store: Store) -> bool:
        """If all runs wait, skip to the earliest due time; False if none of them waits for a time."""
        # In this order: a child that ends between the reads leaves its parent due, and the second sees it.
        if store.list_runs(RunQuery(states=_AWAKE, limit=1)):
            return True
        waiting = store.list_runs(RunQuery(states=(State.CHECKPOINTED,), limit=_MOST_RUNS))
        if not waiting:
            return True
        dues = [run.due_ms for run in waiting if run.due_ms is not None]
        if not dues:
            return False
        left_ms = min(dues) - store.now_ms()
        if left_ms > 0:
            self._ms += left_ms
            self._keep()
        return True

    def _keep(self) -> None:
        """Write the skip atomically: the next process reads it before it does anything else."""
        temporary = self._path.with_name(f"skipped-{os.getpid()}")
        temporary.write_text(str(self._ms))
        # CRASH: the next process does not know of this skip, and skips again.
        temporary.replace(self._path)
