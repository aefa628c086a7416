"""Who lives: an advisory lock per session, on a connection that does nothing else.

The server drops the lock when the connection ends, as it does when its process is killed: whoever looks
next knows at once. But a connection also ends when the network or the server does, so a dropped lock lets
the session's runs go to others, and proves nothing about its process. The holder watches its connection and
takes the lock again as soon as it can; whoever looks, looks twice, and not at sessions that were last seen
before the server started.
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

_PAUSE_SECONDS, _LOOK_SECONDS = 0.1, 1.0


def lock_number(schema: str, name: str) -> int:
    """Return the number of an advisory lock: these are all that a database has in common."""
    digest = blake2b(f"{schema}\0{name}".encode(), digest_size=8, person=b"ninelives-lock")
    return int.from_bytes(digest.digest(), "big", signed=True)


class SessionLock:
    """The lock of one session of this process, held for as long as it lives."""

    def __init__(self, connect: Callable[[], Connection], sql: Mapping[str, Statement], number: int) -> None:
        """Take the lock. Raises BlockingIOError when another process holds it."""
        self._connect, self._sql, self._number = connect, sql, number
        self._is_over = threading.Event()
        self._connection = self._locked("try_lock")
        self._is_held = threading.Event()
        self._is_held.set()
        self._watch = threading.Thread(target=self._keep, name="ninelives-session-lock", daemon=True)
        self._watch.start()

    @property
    def is_held(self) -> bool:
        """Tell whether the lock is held, as far as is known."""
        return self._is_held.is_set()

    def doubt(self) -> None:
        """Take the lock again: the server says that nobody holds it, though our connection seems sound."""
        self._connection.break_off()

    def release(self) -> Connection | None:
        """Let go: the session is over. Returns the connection, if it can be used again."""
        self._is_over.set()
        try:
            self._connection.pgconn.send_query(self._sql["unlock_all"].text)
            self._connection.pgconn.flush()
            # By itself the server drops the lock when it misses the connection; its answer wakes the watch.
            readable([self._connection.fileno()], _LOOK_SECONDS)
        except (psycopg.Error, OSError, ValueError):
            self._connection.close()
        if threading.current_thread() is not self._watch:
            self._watch.join(5.0)
        if self._connection.closed or self._watch.is_alive():
            self._connection.close()
            return None
        with suppress(psycopg.Error, OSError):
            if self._is_answered():
                return self._connection
        self._connection.close()
        return None

    def _is_answered(self) -> bool:
        """Tell whether the server has said that the lock is let go; a silent connection is of no use."""
        libpq = self._connection.pgconn
        while True:
            while libpq.is_busy():
                if not readable([libpq.socket], _LOOK_SECONDS):
                    return False
                libpq.consume_input()
            if libpq.get_result() is None:
                return True

    def _locked(self, statement: str) -> Connection:
        connection = self._connect()
        try:
            # A network that comes back before the lease ends takes nothing from us.
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
            self._is_held.clear()
            self._connection.close()
            with suppress(StoreError):
                self._connection = self._locked("take_lock")  # our old one may not have been missed yet
                self._is_held.set()
            self._is_over.wait(0 if self._is_held.is_set() else _PAUSE_SECONDS)

    def _is_whole(self) -> bool:
        """Wait a while for the connection to end: the server never says anything else on it."""
        try:
            if readable([self._connection.fileno()], _LOOK_SECONDS) and not self._is_over.is_set():
                self._connection.pgconn.consume_input()
        except (psycopg.Error, OSError, ValueError):
            return False
        return self._connection.pgconn.status == psycopg.pq.ConnStatus.OK
