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


class SkippedTime:
    """How far a trial's clock is ahead of the machine's."""

    def __init__(self, home: Path) -> None:
        self._path = home / "skipped"
        self._ms = int(self._path.read_text()) if self._path.exists() else 0

    def install(self) -> None:
        """Move the system clock of this process ahead, from now on."""
        machine, skipped = SystemClock.now_ms, self

        def now_ms(self: SystemClock) -> int:
            return machine(self) + skipped._ms

        SystemClock.now_ms = now_ms  # type: ignore[method-assign]

    def skip(self, store: Store) -> bool:
        """If all runs wait, skip to the earliest due time; False if none of them waits for a time."""
        waiting = store.list_runs(RunQuery(states=(State.CHECKPOINTED,), limit=_MOST_RUNS))
        if store.list_runs(RunQuery(states=_AWAKE, limit=1)) or not waiting:
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
