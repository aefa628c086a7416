"""Wake-ups: LISTEN on a connection of its own, and NOTIFY with the transaction that makes work.

NOTIFY takes a lock of the whole server at COMMIT, so it is sent once per transaction and only where somebody
waits: a listener holds its channel's door (an advisory lock, shared), and a notifier that can take the
door for itself knows that nobody is there. Who comes to listen in that moment waits at the door until the
notifier's transaction is over, and looks for work after that. Nothing rests on a notification: losing one
costs a poll.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

import psycopg
from psycopg import sql

from ninelives.backends.postgres.connection import Connection
from ninelives.backends.postgres.liveness import lock_number, readable
from ninelives.core.errors import StoreError

_PAUSE_SECONDS = 0.2


class Channel:
    """What is notified of, and the door that listeners hold."""

    def __init__(self, schema: str, name: str) -> None:
        self.name = f"ninelives_{schema}_{name}"
        self.door = lock_number(schema, f"door of {name}")


class WakeUps:
    """Wait for notifications on one channel; for all threads of a store object."""

    def __init__(self, channel: Channel, connect: Callable[[], Connection], open_door: bytes) -> None:
        self._channel, self._connect, self._open_door = channel, connect, open_door
        self._connection: Connection | None = None
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
                if self._connection is not None and (
                    getattr(self._seen, "generation", -1) != self._generation
                ):
                    self._seen.generation = self._generation
                    return True
                left = max(0.0, deadline - time.monotonic())
                if self._reading:
                    self._turn.wait(left)
                else:
                    self._read(left)
                seen = getattr(self._seen, "generation", -1)
                if left == 0.0 and (self._connection is None or seen == self._generation):
                    return False
            return False

    def close(self) -> None:
        """Stop listening; who waits is sent away."""
        with self._turn:
            if self._is_closed:
                return
            self._is_closed = True
            os.write(self._outer, b"!")
            self._turn.wait_for(lambda: not self._reading)
            if self._connection is not None:
                self._connection.close()
            self._turn.notify_all()
        os.close(self._inner)
        os.close(self._outer)

    def _read(self, timeout_seconds: float) -> None:
        """Wait on the connection for all threads, without the lock."""
        self._reading = True
        connection = self._connection
        self._turn.release()
        woken = False
        try:
            if connection is None:
                connection = self._listen(timeout_seconds)
                woken = connection is not None
            else:
                woken = self._notified(connection, timeout_seconds)
        except (psycopg.Error, OSError):
            # What was sent while nobody listened is lost: look for work, then listen again.
            if connection is not None:
                connection.close()
            connection, woken = None, True
        finally:
            self._turn.acquire()
            self._connection = connection
            self._reading = False
            self._generation += woken
            self._turn.notify_all()

    def _listen(self, timeout_seconds: float) -> Connection | None:
        connection: Connection | None = None
        try:
            connection = self._connect()
            connection.execute(self._open_door, (self._channel.door,))
            connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(self._channel.name)))
        except (StoreError, psycopg.Error):
            if connection is not None:
                connection.close()
            readable([self._inner], min(timeout_seconds, _PAUSE_SECONDS))
            return None
        return connection

    def _notified(self, connection: Connection, timeout_seconds: float) -> bool:
        if connection.fileno() not in readable([connection.fileno(), self._inner], timeout_seconds):
            return False
        connection.pgconn.consume_input()
        found = False
        while connection.pgconn.notifies() is not None:
            found = True
        return found
