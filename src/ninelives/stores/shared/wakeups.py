"""Wake-ups by a server: one thread of a store object waits on its connection for all that wait.

Nothing rests on a wake-up: losing one costs a poll.
"""

from __future__ import annotations

import os
import select
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Generic, TypeVar

PAUSE_SECONDS = 0.2
"""How long to wait before a server that was not there is asked again."""
Line = TypeVar("Line")


class WakeUps(ABC, Generic[Line]):
    """Wait for wake-ups on one channel; for all threads of a store object."""

    def __init__(self) -> None:
        self._line: Line | None = None
        self._inner, self._outer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._turn = threading.Condition()
        self._reading = False
        self._generation = 0
        self._is_closed = False
        self._seen = threading.local()

    def wait(self, timeout_seconds: float) -> bool:
        """Wait for a wake-up since this thread's last call; its first call returns at once."""
        deadline = time.monotonic() + timeout_seconds
        with self._turn:
            while not self._is_closed:
                if self._line is not None and getattr(self._seen, "generation", -1) != self._generation:
                    self._seen.generation = self._generation
                    return True
                left = max(0.0, deadline - time.monotonic())
                if self._reading:
                    self._turn.wait(left)
                else:
                    self._read(left)
                seen = getattr(self._seen, "generation", -1)
                if left == 0.0 and (self._line is None or seen == self._generation):
                    return False
            return False

    def close(self) -> None:
        """Stop waiting; who waits is sent away."""
        with self._turn:
            if self._is_closed:
                return
            self._is_closed = True
            os.write(self._outer, b"!")
            self._turn.wait_for(lambda: not self._reading)
            if self._line is not None:
                self._leave(self._line)
            self._turn.notify_all()
        os.close(self._inner)
        os.close(self._outer)

    def _read(self, timeout_seconds: float) -> None:
        """Wait on the line for all threads, without the lock."""
        self._reading = True
        line, woken = self._line, False
        self._turn.release()
        try:
            if line is None:
                line = self._listen(timeout_seconds)
                woken = line is not None
            else:
                line, woken = self._hear(line, timeout_seconds)
        finally:
            self._turn.acquire()
            self._line = line
            self._reading = False
            self._generation += woken
            self._turn.notify_all()

    def _rest(self, timeout_seconds: float) -> None:
        """Wait a little, unless we are closed."""
        readable([self._inner], min(timeout_seconds, PAUSE_SECONDS))

    @abstractmethod
    def _listen(self, timeout_seconds: float) -> Line | None:
        """Return a line on which wake-ups come from now on; None when there is none."""

    @abstractmethod
    def _hear(self, line: Line, timeout_seconds: float) -> tuple[Line | None, bool]:
        """Wait on the line; returns it, unless it is lost, and whether to look for work.

        What was sent while nobody listened is lost: who loses the line looks for work, then listens again.
        """

    @abstractmethod
    def _leave(self, line: Line) -> None:
        """Close the line."""


def readable(fds: Sequence[int], timeout_seconds: float) -> list[int]:
    """Wait until there is something to read; returns where."""
    poll = select.poll()
    for fd in fds:
        poll.register(fd, select.POLLIN)
    return [fd for fd, _ in poll.poll(timeout_seconds * 1000)]
