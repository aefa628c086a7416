"""Deaths, as they happen: each worker waits for the lock of another one, and gets it when that one is gone.

The sessions form a ring in the order of their names, and each watches the next: the server has one waiting
connection for each worker. Who gets its neighbour's lock lets it go again and ends all sessions that are
gone, so neighbours that die together are found together. The ring is looked at anew every second, by a lone
worker more often: who has joined is watched from then on, and who died before that is seen in the same look.
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

_PAUSE_SECONDS, _ALONE_SECONDS = 0.2, 0.3
_FIRST_SECONDS = 0.25  # a script that is done before that needs no connection for it


class Ring(NamedTuple):
    """The sessions as one of them sees them."""

    neighbour: int | None
    """The lock of the next one, if there is another."""
    is_broken: bool
    """One has dropped its lock and has not been ended."""


class DeathWatch:
    """Watches the neighbour of this process's session, in its own thread, once somebody waits for work."""

    def __init__(self, lines: Pool, look: Callable[[], Ring], end_gone: Callable[[], object]) -> None:
        self._lines, self._look, self._end_gone = lines, look, end_gone
        self._is_over = threading.Event()
        self._turn = threading.Lock()
        self._connection: Connection | None = None
        self._thread: threading.Thread | None = None

    def watch(self) -> None:
        """Begin to watch, unless it has begun."""
        with self._turn:
            if self._thread is None and not self._is_over.is_set():
                self._thread = threading.Thread(target=self._run, name="ninelives-deaths", daemon=True)
                self._thread.start()

    def close(self) -> None:
        """Watch no more."""
        with self._turn:
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
        ring = self._look()
        if ring.is_broken:
            self._end_gone()
        number = ring.neighbour
        if number is None:
            self._is_over.wait(_ALONE_SECONDS)
            return
        if self._connection is None:
            self._connection = self._lines.connect()
            self._connection.execute(self._lines.sql["be_patient"].text)
        try:
            self._connection.execute(self._lines.sql["await_lock"].text, (number,))
        except (driver.LockNotAvailable, driver.QueryCanceled):
            return  # it lives, or we are to stop
        self._connection.execute(self._lines.sql["let_go"].text, (number,))
        self._end_gone()

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
