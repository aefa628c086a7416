"""Wake-ups: LISTEN on a separate connection, and NOTIFY with the transaction that creates work.

NOTIFY takes a lock of the whole server at COMMIT, so it is sent once per transaction and only if a process
waits. A listener holds its channel's door (an advisory lock, shared). A notifier that can take the door
exclusively knows that no process listens. A process that begins to listen at that moment waits at the door
until the notifier's transaction is over, and polls for work after that.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

import psycopg
from psycopg import sql

from ninelives.stores.postgres.server.open_connection import Connection
from ninelives.stores.postgres.server.session_locks import lock_number
from ninelives.stores.shared.wakeups import ServerWakeUps, readable

# A firewall that forgets an idle connection sends no error: without a test we would listen in vain.
_PING_SECONDS = 20.0


class Channel:
    """What is notified of, and the door (advisory lock) that listeners hold."""

    def __init__(self, schema: str, name: str) -> None:
        self.name = f"ninelives_{schema}_{name}"
        self.door = lock_number(schema, f"door of {name}")


class Notifications(ServerWakeUps[Connection]):
    """Wait for notifications on one channel."""

    def __init__(self, channel: Channel, connect: Callable[[], Connection], open_door: bytes) -> None:
        super().__init__(connect, (psycopg.Error, OSError))
        self._channel, self._open_door = channel, open_door
        self._ping_at = 0.0

    def _subscribe(self, connection: Connection) -> None:
        self._ping_at = monotonic() + _PING_SECONDS
        # The door before LISTEN: a notifier that finds the door
        # free skips NOTIFY, and we poll once we are through it.
        connection.execute(self._open_door, (self._channel.door,))
        connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(self._channel.name)))

    def _is_woken(self, connection: Connection, timeout_seconds: float) -> bool:
        if connection.fileno() not in readable([connection.fileno(), self._inner], timeout_seconds):
            return self._pinged(connection)
        connection.pgconn.consume_input()
        found = False
        while connection.pgconn.notifies() is not None:
            # Read all of them: many notifications are one reason to poll.
            found = True
        return found

    def _pinged(self, connection: Connection) -> bool:
        """Test the connection now and then, since it may never receive anything; return whether it did.

        psycopg drops notifications that arrive meanwhile, so the caller must poll for work after a test.
        """
        if monotonic() < self._ping_at:
            return False
        connection.execute("SELECT 1")
        self._ping_at = monotonic() + _PING_SECONDS
        return True
