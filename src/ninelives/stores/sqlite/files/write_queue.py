"""The writers' queue: which process writes next. See docs/decisions/0004.

SQLite makes writers busy-wait, and an unlucky one starves (one of four got 1 % of the writes). So writers of
all processes take two flocks before BEGIN IMMEDIATE: `next`, held while first in the queue, and `write`, held
while writing. After writing, a process must take `next` again, where the others wait. Renewals of leases skip
`next`: a store under load must not cost a worker its session.

The kernel drops both locks when their holder dies, however it dies. A holder that is stopped keeps them; then
`acquire` gives up after a while (StoreUnavailable; nothing was written). flock itself cannot time out, so we
poll it every fraction of a millisecond; at most one process polls `write`, plus renewals.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ninelives.core.errors import StoreUnavailable

_POLL_SECONDS = {"next.lock": 0.0004, "write.lock": 0.00005}
_PATIENCE_SECONDS, _IDLE_SECONDS = 0.5, 0.005  # after that long, poll less often


class WritersQueue:
    """The queue of all processes that write to one database; used by one thread of a process at a time."""

    def __init__(self, directory: Path, timeout_seconds: float) -> None:
        self._timeout = timeout_seconds
        self._fds: dict[str, int] = {}
        try:
            for name in _POLL_SECONDS:
                self._fds[name] = os.open(directory / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError:
            self.close()
            raise

    def acquire(self, *, urgent: bool = False) -> None:
        """Wait for the right to write.

        Raises StoreUnavailable when it is not granted in time.
        """
        if urgent:
            self._enter("write.lock")
            return
        self._enter("next.lock")
        try:
            self._enter("write.lock")
        finally:
            # Release `next` at once: the next writer polls `write`
            # while we write, so no time is lost between two writers.
            fcntl.flock(self._fds["next.lock"], fcntl.LOCK_UN)

    def release(self) -> None:
        """Let the next process write."""
        fcntl.flock(self._fds["write.lock"], fcntl.LOCK_UN)

    def close(self) -> None:
        """Close both locks."""
        for fd in self._fds.values():
            os.close(fd)

    def _enter(self, name: str) -> None:
        # The clock is read only when the lock is taken: a free queue costs a step one system call.
        began = None
        while True:
            try:
                fcntl.flock(self._fds[name], fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                now = time.monotonic()
                began = now if began is None else began
                if now - began > self._timeout:
                    raise StoreUnavailable(
                        f"another process has held the writers' lock for {self._timeout:g} s",
                        remedy="Nothing was written. Find the process that is stopped or hangs, and end it",
                    ) from None
                time.sleep(_POLL_SECONDS[name] if now - began < _PATIENCE_SECONDS else _IDLE_SECONDS)
            else:
                return


@contextmanager
def held(directory: Path) -> Iterator[None]:
    """Keep all writers of a database out for a while. Raises StoreUnavailable."""
    queue = WritersQueue(directory, 5.0)
    try:
        queue.acquire()
        try:
            yield
        finally:
            queue.release()
    finally:
        queue.close()
