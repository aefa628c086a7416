"""A place for one worker: who is in it, who is to follow, and when a dead one is replaced."""

from __future__ import annotations

from ninelives.supervisor.process import WorkerProcess

FIRST_PAUSE_MS = 100
LONG_LIFE_MS = 10_000
"""Who lived so long was no crash loop."""


class Slot:
    """One place; `successor` is the new worker of a rolling restart until it is ready."""

    def __init__(self, number: int, longest_pause_ms: int) -> None:
        self.number, self._longest_pause_ms = number, longest_pause_ms
        self.child: WorkerProcess | None = None
        self.successor: WorkerProcess | None = None
        self.retiring: list[WorkerProcess] = []
        self.restarts = 0
        self.restart_at_ms: int | None = 0
        self._short_lives = 0

    def children(self) -> list[WorkerProcess]:
        """Return the processes of this place."""
        return [one for one in (self.child, self.successor, *self.retiring) if one is not None]

    def bury(self, child: WorkerProcess, now_ms: int, *, is_stop: bool) -> int:
        """Take a dead worker out; returns the pause, in milliseconds, before the next one is started.

        The first is replaced at once; each further one that did not live long doubles the pause.
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
        """Put a new worker in."""
        self.child, self.restart_at_ms = child, None

    def promote(self) -> None:
        """Let the successor, which is ready, take the place; who had it is ended."""
        before, self.child, self.successor = self.child, self.successor, None
        self.restart_at_ms = None
        if before is not None:
            self._end(before)

    def clear(self) -> None:
        """End whoever is here; nobody follows."""
        for child in (self.child, self.successor):
            if child is not None:
                self._end(child)
        self.child = self.successor = self.restart_at_ms = None

    def _end(self, child: WorkerProcess) -> None:
        child.is_told = True
        child.kill()  # which is as good as any other end
        self.retiring.append(child)
