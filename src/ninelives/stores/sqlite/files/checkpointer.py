"""The checkpointer: moves the log into the database, off the hot path.

One process at a time does it, elected by a lock. First it copies while writers continue. Then, holding the
writers' queue, it copies the little that was added meanwhile, so that the log restarts from its beginning and
does not grow under steady load. If we die here, the log is whole and the next checkpointer does the work.
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Callable
from pathlib import Path

import apsw

from ninelives.core.errors import StoreError, StoreUnavailable
from ninelives.stores.sqlite.files.connection import PAGE_BYTES, translate, translated

LOG_PAGES = 2000
# A frame of SQLite's log is a header of 24 bytes and a page.
FRAME_BYTES = PAGE_BYTES + 24
LOG_BYTES = LOG_PAGES * FRAME_BYTES


class Checkpointer:
    """A thread that empties the log when the log has grown."""

    def __init__(
        self,
        live: Path,
        connect: Callable[[], apsw.Connection],
        exclusively: Callable[[Callable[[], None]], None],
        copied: Callable[[apsw.Connection], None],
        broken: Callable[[StoreError], None],
    ) -> None:
        self._lock = os.open(live / "checkpoint.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._connect, self._exclusively, self._copied, self._broken = connect, exclusively, copied, broken
        self._wanted = threading.Event()
        self._closing = False
        self._thread: threading.Thread | None = None

    def grown(self, pages: int) -> None:
        """Take note of the log's length after a commit; start the thread if it is long."""
        # Called in every commit's hook: a request that is pending must cost a commit nothing.
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
        thread = self._thread
        # Join before the lock is closed: its number could be
        # reused, and the thread would flock a stranger's file.
        if thread is not None:
            thread.join()
        os.close(self._lock)

    def disown(self) -> None:
        """In a forked child: close the lock, which belongs to the parent."""
        os.close(self._lock)

    def _work(self) -> None:
        try:
            connection = self._connect()
            try:
                while self._wanted.wait() and not self._closing:
                    self._wanted.clear()  # before the work, so that a request made meanwhile is not lost
                    self._empty(connection)
            finally:
                connection.close()
        except (StoreUnavailable, OSError):
            # A full disk, a stopped writer, too many open files: the next commit starts the thread again.
            self._thread = None
            self._wanted.clear()
        except StoreError as error:
            self._broken(error)

    def _finish(self, connection: apsw.Connection) -> None:
        if _copy(connection):
            # Only if everything was copied does the file alone
            # hold all commits, which is what the anchor then says.
            with translated(connection):
                self._copied(connection)

    def _empty(self, connection: apsw.Connection) -> None:
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return  # another process is doing it
        try:
            # First without the writers' lock: the bulk of the
            # copying, and its syncs, must not hold up commits.
            _copy(connection)
            self._exclusively(lambda: self._finish(connection))
        finally:
            fcntl.flock(self._lock, fcntl.LOCK_UN)


def _copy(connection: apsw.Connection) -> bool:
    """Copy what can be copied without waiting; return whether that was everything."""
    try:
        pages, copied = connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
    except apsw.BusyError:
        return False  # a reader still needs part of the log; the next round copies it
    except apsw.Error as error:
        raise translate(error, connection) from error
    return pages == copied
