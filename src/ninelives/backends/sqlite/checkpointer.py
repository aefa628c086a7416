"""The checkpointer: moves the log into the database, off the hot path.

One process at a time does it, elected by a lock. First it copies while writers go on; then, holding
the writers' queue, it copies the little that came meanwhile, so that the log starts again from its
beginning and does not grow under steady load. If we die here, the log is whole and the next one does it.
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Callable
from pathlib import Path

import apsw

from ninelives.backends.sqlite.connection import PAGE_BYTES, translate
from ninelives.core.errors import StoreError, StoreUnavailable

LOG_PAGES = 2000
LOG_BYTES = LOG_PAGES * (PAGE_BYTES + 24)


class Checkpointer:
    """A thread that empties the log when it is told that it has grown."""

    def __init__(
        self,
        live: Path,
        connect: Callable[[], apsw.Connection],
        alone: Callable[[Callable[[], None]], None],
        broken: Callable[[StoreError], None],
    ) -> None:
        self._lock = os.open(live / "checkpoint.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._connect, self._alone, self._broken = connect, alone, broken
        self._wanted = threading.Event()
        self._closing = False
        self._thread: threading.Thread | None = None

    def grown(self, pages: int) -> None:
        """Take note of the log's length after a commit."""
        if pages < LOG_PAGES or self._wanted.is_set():
            return
        self._wanted.set()
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="ninelives-checkpointer", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Stop the thread."""
        self._closing = True
        self._wanted.set()
        if self._thread is not None:
            self._thread.join()
        os.close(self._lock)

    def _work(self) -> None:
        connection = self._connect()
        try:
            while self._wanted.wait() and not self._closing:
                self._wanted.clear()  # before the work: what is asked for meanwhile, or close, is not lost
                self._empty(connection)
        except StoreUnavailable:
            self._thread = None  # a full disk or a stopped writer: the next commit starts us again
        except StoreError as error:
            self._broken(error)
        finally:
            connection.close()

    def _empty(self, connection: apsw.Connection) -> None:
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return  # another process is at it
        try:
            _copy(connection)
            self._alone(lambda: _copy(connection))
        finally:
            fcntl.flock(self._lock, fcntl.LOCK_UN)


def _copy(connection: apsw.Connection) -> None:
    try:
        connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
    except apsw.BusyError:
        pass  # a reader holds a part of the log; the next round takes it
    except apsw.Error as error:
        raise translate(error, connection) from error
