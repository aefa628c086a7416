"""Wake-ups: LISTEN on a connection of its own, and NOTIFY with the transaction that makes work.

NOTIFY takes a lock of the whole server at COMMIT, so it is sent once per transaction and only where somebody
waits: a listener holds its channel's door (an advisory lock, shared), and a notifier that can take the
door for itself knows that nobody is there. Who comes to listen in that moment waits at the door until the
notifier's transaction is over, and looks for work after that.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

import psycopg
from psycopg import sql

from ninelives.core.errors import StoreError
from ninelives.stores.postgres.server.open_connection import Connection
from ninelives.stores.postgres.server.session_locks import lock_number
from ninelives.stores.shared.wakeups import WakeUps, readable

_ASK_SECONDS = 20.0


class Channel:
    """What is notified of, and the door that listeners hold."""

    def __init__(self, schema: str, name: str) -> None:
        self.name = f"ninelives_{schema}_{name}"
        self.door = lock_number(schema, f"door of {name}")


class Notifications(WakeUps[Connection]):
    """Wait for notifications on one channel."""

    def __init__(self, channel: Channel, connect: Callable[[], Connection], open_door: bytes) -> None:
        super().__init__()
        self._channel, self._connect, self._open_door = channel, connect, open_door
        self._ask_at = 0.0

    def _listen(self, timeout_seconds: float) -> Connection | None:
        connection: Connection | None = None
        try:
            connection = self._connect()
            self._ask_at = monotonic() + _ASK_SECONDS
            connection.execute(self._open_door, (self._channel.door,))
            connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(self._channel.name)))
        except (StoreError, psycopg.Error, OSError):
            if connection is not None:
                connection.close()
            self._rest(timeout_seconds)
            return None
        return connection

    def _hear(self, line: Connection, timeout_seconds: float) -> tuple[Connection | None, bool]:
        try:
            return line, self._notified(line, timeout_seconds)
        except (psycopg.Error, OSError):
            line.close()
            return None, True

    def _leave(self, line: Connection) -> None:
        line.close()

    def _notified(self, connection: Connection, timeout_seconds: float) -> bool:
        if connection.fileno() not in readable([connection.fileno(), self._inner], timeout_seconds):
            return self._is_asked(connection)
        connection.pgconn.consume_input()
        found = False
        while connection.pgconn.notifies() is not None:
            found = True
        return found

    def _is_asked(self, connection: Connection) -> bool:
        """Ask now and then, where nothing is ever answered, whether the connection still is one.

        What was notified meanwhile the driver has taken: who asked looks for work.
        """
        if monotonic() < self._ask_at:
            return False
        connection.execute("SELECT 1")
        self._ask_at = monotonic() + _ASK_SECONDS
        return True
