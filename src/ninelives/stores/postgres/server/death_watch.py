"""Deaths, as they happen: each worker waits for the lock of another one, and gets it at its death.

The sessions form a ring in the order of their names, and each watches the next. So the server has one waiting
connection for each worker. A worker that gets its neighbour's lock releases it again and ends all sessions
that are gone, so neighbours that die together are found together. The ring is read again every second, by a
single worker more often: new sessions are watched from then on, and sessions that died before are found then.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

import psycopg
from psycopg import errors as driver

from ninelives.core.errors import NineLivesError
from ninelives.stores.postgres.server.open_connection import Connection
from ninelives.stores.postgres.server.pool import Pool

# A worker without a neighbour asks more often: the next one may die as soon as it has come (decision 13).
_PAUSE_SECONDS, _SINGLE_SECONDS = 0.2, 0.3
_FIRST_SECONDS = 0.25  # a script that ends before that needs no connection for it


class Ring(NamedTuple):
    """The sessions, as one of them sees them."""

    neighbour: int | None
    """The lock of the next session, if there is another."""
    is_broken: bool
    """Whether a session has dropped its lock and has not been ended."""


class DeathWatch:
    """A thread that watches the neighbour of this process's session, once a thread waits for work."""

    def __init__(self, pool: Pool, read_ring: Callable[[], Ring], end_gone: Callable[[], object]) -> None:
        self._pool, self._read_ring, self._end_gone = pool, read_ring, end_gone
        self._is_over = threading.Event()
        self._lock = threading.Lock()
        self._connection: Connection | None = None
        self._thread: threading.Thread | None = None

    def watch(self) -> None:
        """Start the thread, unless it runs."""
        with self._lock:
            if self._thread is None and not self._is_over.is_set():
                self._thread = threading.Thread(target=self._run, name="ninelives-deaths", daemon=True)
                self._thread.start()

    def close(self) -> None:
        """Stop the thread."""
        with self._lock:
            self._is_over.set()
            thread, connection = self._thread, self._connection
        if connection is not None:
            with suppress(psycopg.Error):
                connection.cancel_safe(timeout=5.0)
        if thread is not None and thread is not threading.current_thread():
            thread.join(10.0)

    def _run(self) -> None:
        self._is_over.wait(_FIRST_SECONDS)
        while not self._is_over.is_set():
            try:
                self._watch()
            except (NineLivesError, psycopg.Error):
                self._drop()
                self._is_over.wait(_PAUSE_SECONDS)
        self._drop()

    def _watch(self) -> None:
        ring = self._read_ring()
        if ring.is_broken:
            self._end_gone()
        number = ring.neighbour
        if number is None:
            self._is_over.wait(_SINGLE_SECONDS)
            return
        if self._connection is None:
            self._connection = self._pool.connect()
            self._connection.execute(self._pool.sql["be_patient"].text)
        try:
            self._connection.execute(self._pool.sql["await_lock"].text, (number,))
        except (driver.LockNotAvailable, driver.QueryCanceled):
            return  # the neighbour lives, or `close` was called
        # Let go first: while we hold the lock, the dead session seems to live.
        self._connection.execute(self._pool.sql["let_go"].text, (number,))
        self._end_gone()

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
