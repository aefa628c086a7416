"""Wake-ups: one thread of a store object waits on the connection for all threads.

Correctness never depends on a wake-up: losing one costs a poll interval.
"""

from __future__ import annotations

import os
import select
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

from ninelives.core.errors import StoreError

PAUSE_SECONDS = 0.2
"""Pause before a server that could not be reached is tried again."""
Connection = TypeVar("Connection")


class WakeUps(ABC, Generic[Connection]):
    """Wait for wake-ups on one channel, for all threads of a store object."""

    def __init__(self) -> None:
        self._connection: Connection | None = None
        self._changed = threading.Condition()
        self._reading = False
        self._generation = 0
        self._is_closed = False
        self._seen = threading.local()

    def wait(self, timeout_seconds: float) -> bool:
        """Wait for a wake-up since this thread's last call; the first call returns at once."""
        deadline = time.monotonic() + timeout_seconds
        with self._changed:
            while not self._is_closed:
                if self._connection is not None and getattr(self._seen, "generation", -1) != self._generation:
                    self._seen.generation = self._generation
                    return True
                left = max(0.0, deadline - time.monotonic())
                if self._reading:
                    self._changed.wait(left)
                else:
                    self._read(left)
                seen = getattr(self._seen, "generation", -1)
                if left == 0.0 and (self._connection is None or seen == self._generation):
                    return False
            return False

    def close(self) -> None:
        """Close the connection; threads that wait return."""
        with self._changed:
            if self._is_closed:
                return
            self._is_closed = True
            if self._reading:
                self._interrupt()
                # The reading thread uses the connection without the lock: it must be out before we close it.
                self._changed.wait_for(lambda: not self._reading)
            if self._connection is not None:
                self._disconnect(self._connection)
            self._changed.notify_all()
        self._release()

    def _read(self, timeout_seconds: float) -> None:
        """Wait on the connection for all threads, with the lock released."""
        self._reading = True
        connection, woken = self._connection, False
        self._changed.release()
        try:
            if connection is None:
                connection = self._listen(timeout_seconds)
                # Until now no connection listened: what was sent meanwhile is lost, so poll.
                woken = connection is not None
            else:
                connection, woken = self._receive(connection, timeout_seconds)
        finally:
            self._changed.acquire()
            self._connection = connection
            self._reading = False
            # A generation, not a flag: each thread compares with what it
            # saw itself, so the first to wake takes nothing from the others.
            self._generation += woken
            self._changed.notify_all()

    @abstractmethod
    def _listen(self, timeout_seconds: float) -> Connection | None:
        """Return a connection that receives wake-ups from now on; None if the server cannot be reached."""

    @abstractmethod
    def _receive(self, connection: Connection, timeout_seconds: float) -> tuple[Connection | None, bool]:
        """Wait on the connection; return it (None if it is lost) and whether to poll for work.

        Wake-ups sent while no connection listens are lost. So after losing it, poll for work, then listen
        again.
        """

    @abstractmethod
    def _interrupt(self) -> None:
        """Make the thread that waits on the connection return."""

    @abstractmethod
    def _disconnect(self, connection: Connection) -> None:
        """Close the connection."""

    @abstractmethod
    def _release(self) -> None:
        """Close everything else."""


class Closable(Protocol):
    """A connection to a server."""

    def close(self) -> None:
        """Close it."""


ServerConnection = TypeVar("ServerConnection", bound=Closable)


class ServerWakeUps(WakeUps[ServerConnection]):
    """Wait for wake-ups from a server; `lost` are the driver's errors for a connection that ended."""

    def __init__(self, connect: Callable[[], ServerConnection], lost: tuple[type[Exception], ...]) -> None:
        super().__init__()
        self._connect, self._lost = connect, lost
        self._refused: tuple[type[Exception], ...] = (StoreError, *lost)
        # Wakes the thread that waits in poll: closing the socket under it would not.
        self._inner, self._outer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)

    def _listen(self, timeout_seconds: float) -> ServerConnection | None:
        connection: ServerConnection | None = None
        try:
            connection = self._connect()
            self._subscribe(connection)
        except self._refused:
            if connection is not None:
                connection.close()
            readable([self._inner], min(timeout_seconds, PAUSE_SECONDS))
            return None
        return connection

    def _receive(
        self, connection: ServerConnection, timeout_seconds: float
    ) -> tuple[ServerConnection | None, bool]:
        try:
            return connection, self._is_woken(connection, timeout_seconds)
        except self._lost:
            connection.close()
            return None, True

    @abstractmethod
    def _subscribe(self, connection: ServerConnection) -> None:
        """Ask the server for wake-ups on this connection."""

    @abstractmethod
    def _is_woken(self, connection: ServerConnection, timeout_seconds: float) -> bool:
        """Wait on the connection; return whether to poll for work."""

    def _interrupt(self) -> None:
        os.write(self._outer, b"!")

    def _disconnect(self, connection: ServerConnection) -> None:
        connection.close()

    def _release(self) -> None:
        os.close(self._inner)
        os.close(self._outer)


def readable(fds: Sequence[int], timeout_seconds: float) -> list[int]:
    """Wait until one of these descriptors is readable; return those that are."""
    poll = select.poll()
    for fd in fds:
        poll.register(fd, select.POLLIN)
    return [fd for fd, _ in poll.poll(timeout_seconds * 1000)]
