"""A slot for one worker: its process, its successor in a rolling restart, and the pauses after deaths."""

from __future__ import annotations

from ninelives.supervisor.process import WorkerProcess

FIRST_PAUSE_MS = 100
LONG_LIFE_MS = 10_000
"""A worker that lived this long is not part of a crash loop."""


class WorkerSlot:
    """One slot; `successor` is the new worker of a rolling restart until it is ready."""

    def __init__(self, number: int, longest_pause_ms: int) -> None:
        self.number, self._longest_pause_ms = number, longest_pause_ms
        self.child: WorkerProcess | None = None
        self.successor: WorkerProcess | None = None
        self.retiring: list[WorkerProcess] = []
        self.restart_at_ms: int | None = 0
        self._short_lives = 0

    def children(self) -> list[WorkerProcess]:
        """Return all processes of this slot."""
        return [one for one in (self.child, self.successor, *self.retiring) if one is not None]

    def remove(self, child: WorkerProcess, now_ms: int, *, is_stop: bool) -> int:
        """Remove a dead worker; return the pause, in milliseconds, before the next one is started.

        The first death has no pause; each further short-lived worker doubles it.
        """
        if child is self.successor:
            self.successor = None
            return 0
        if child in self.retiring:
            self.retiring.remove(child)
            return 0
        self.child = None
        is_short = now_ms - child.started_ms < LONG_LIFE_MS and not is_stop
        self._short_lives = self._short_lives + 1 if is_short else 0
        pause_ms = 0
        if self._short_lives > 1:
            pause_ms = min(self._longest_pause_ms, FIRST_PAUSE_MS << min(self._short_lives - 2, 16))
        self.restart_at_ms = now_ms + pause_ms
        return pause_ms

    def fill(self, child: WorkerProcess) -> None:
        """Set the worker of this slot."""
        self.child, self.restart_at_ms = child, None

    def promote(self) -> None:
        """Make the successor, which is ready, the worker of this slot; kill the old one."""
        before, self.child, self.successor = self.child, self.successor, None
        self.restart_at_ms = None
        if before is not None:
            self._end(before)

    def end(self, session: str, now_ms: int) -> None:
        """Kill the worker that has this session; another one is started at once."""
        for child in self.children():
            if child.session == session and not child.is_stopping:
                if child is self.successor:
                    self.successor = None
                elif child is self.child:
                    self.child, self.restart_at_ms = None, now_ms
                self._end(child)

    def clear(self) -> None:
        """Kill the slot's workers, without replacement."""
        for child in (self.child, self.successor):
            if child is not None:
                self._end(child)
        self.child = self.successor = self.restart_at_ms = None

    def _end(self, child: WorkerProcess) -> None:
        child.is_stopping = True
        child.kill()  # as safe as any graceful stop: the runtime is crash-only
        self.retiring.append(child)
