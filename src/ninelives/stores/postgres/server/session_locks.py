"""Which sessions live: an advisory lock per session, on a connection that does nothing else.

The server drops the lock when the connection ends, for example because its process was killed; the next
process that checks sees it at once. But a connection also ends when the network or the server fails. So a
dropped lock lets other workers take the session's runs, and proves nothing about its process. The holder
watches its connection and takes the lock again as soon as it can. Other processes check twice before they
end a session, and ignore sessions that were last seen before the server started.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from hashlib import blake2b

import psycopg

from ninelives.core.errors import StoreError
from ninelives.stores.postgres.server.open_connection import Connection, translate
from ninelives.stores.postgres.server.queries import Statement
from ninelives.stores.shared.wakeups import readable

# Shorter than the 0.2 s after which others check again:
# a holder that lost its connection can be back by then.
_PAUSE_SECONDS, _POLL_SECONDS = 0.1, 1.0
_PATIENCE_SECONDS = 5.0


def lock_number(schema: str, name: str) -> int:
    """Return the number of an advisory lock; it includes the schema, since a database shares them all."""
    digest = blake2b(f"{schema}\0{name}".encode(), digest_size=8, person=b"ninelives-lock")
    return int.from_bytes(digest.digest(), "big", signed=True)


class SessionLock:
    """The lock of one session of this process, held for as long as the session lives."""

    def __init__(self, connect: Callable[[], Connection], sql: Mapping[str, Statement], number: int) -> None:
        """Take the lock. Raises BlockingIOError when another process holds it."""
        self._connect, self._sql, self._number = connect, sql, number
        self._is_over, self._is_abandoned = threading.Event(), threading.Event()
        self._connection = self._locked("try_lock")
        self._is_held = threading.Event()
        self._is_held.set()
        self._watch = threading.Thread(target=self._keep, name="ninelives-session-lock", daemon=True)
        self._watch.start()

    @property
    def is_held(self) -> bool:
        """Whether the lock is held, as far as this process knows."""
        return self._is_held.is_set()

    def doubt(self) -> None:
        """Take the lock again: the server reports it free, though our connection seems sound."""
        self._connection.break_off()

    def release(self) -> Connection | None:
        """Release the lock: the session is over. Return the connection if it can be reused."""
        # First: the watching thread must not take the end of this connection for a loss, and lock again.
        self._is_over.set()
        try:
            self._connection.pgconn.send_query(self._sql["unlock_all"].text)
            self._connection.pgconn.flush()
            # Without this, the server drops the lock only when it misses the connection. Its answer wakes
            # the watching thread.
            readable([self._connection.fileno()], _POLL_SECONDS)
        except (psycopg.Error, OSError, ValueError):
            self._connection.close()
        if threading.current_thread() is not self._watch:
            self._watch.join(_PATIENCE_SECONDS)
        # A thread that is still at work may use the connection: it cannot be given to the next session.
        if self._connection.closed or self._watch.is_alive():
            self._is_abandoned.set()
            self._connection.close()
            return None
        with suppress(psycopg.Error, OSError):
            if self._is_answered():
                return self._connection
        self._connection.close()
        return None

    def _is_answered(self) -> bool:
        """Return whether the server confirmed the release; otherwise the connection cannot be reused."""
        libpq = self._connection.pgconn
        while True:
            while libpq.is_busy():
                if not readable([libpq.socket], _POLL_SECONDS):
                    return False
                libpq.consume_input()
            if libpq.get_result() is None:
                return True

    def _locked(self, statement: str) -> Connection:
        connection = self._connect()
        try:
            # The connection survives a network outage that is shorter than the lease.
            connection.execute(self._sql["bear_silence"].text)
            row = connection.execute(self._sql[statement].text, (self._number,)).fetchone()
        except psycopg.Error as error:
            connection.close()
            raise translate(error) from error
        if row is not None and row[0] is False:
            connection.close()
            raise BlockingIOError
        return connection

    def _keep(self) -> None:
        while not self._is_over.is_set():
            if self._is_whole():
                continue
            # Cleared before the attempt: a renewal meanwhile must not write that the lock is held.
            self._is_held.clear()
            self._connection.close()
            with suppress(StoreError):
                self._connection = self._locked("take_lock")  # waits until the server drops the old one
                self._is_held.set()
            self._is_over.wait(0 if self._is_held.is_set() else _PAUSE_SECONDS)
        # A lock that the server granted after `release` gave up: nothing else closes its connection.
        if self._is_abandoned.is_set():
            self._connection.close()

    def _is_whole(self) -> bool:
        """Wait a while for the connection to end: the server never sends anything else on it."""
        try:
            if readable([self._connection.fileno()], _POLL_SECONDS) and not self._is_over.is_set():
                self._connection.pgconn.consume_input()
        except (psycopg.Error, OSError, ValueError):
            return False
        return self._connection.pgconn.status == psycopg.pq.ConnStatus.OK
