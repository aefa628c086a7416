"""Time that is skipped: a run that sleeps for a month is woken at once, and all its lives agree on the date.

Only what SQLite's clock says is moved, which is this process's own; a server has its own time. Leases are
kept by another clock and stay as long as they are. If we die before the skip is written, the next life skips.
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
    """How far the clock of a trial is ahead of the machine's."""

    def __init__(self, home: Path) -> None:
        self._path = home / "skipped"
        self._ms = int(self._path.read_text()) if self._path.exists() else 0

    def install(self) -> None:
        """Put the clocks of this process ahead, from now on."""
        machine, skipped = SystemClock.now_ms, self

        def now_ms(self: SystemClock) -> int:
            return machine(self) + skipped._ms

        SystemClock.now_ms = now_ms  # type: ignore[method-assign]

    def skip(self, store: Store) -> bool:
        """Go to the time that the next run waits for, if all wait; False if none of them waits for a time."""
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
        """Write it down whole or not at all: the next life reads it before it does anything else."""
        draft = self._path.with_name(f"skipped-{os.getpid()}")
        draft.write_text(str(self._ms))
        # CRASH: the next life knows nothing of this skip, and skips again.
        draft.replace(self._path)
