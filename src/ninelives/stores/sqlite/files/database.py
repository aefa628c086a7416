"""The open files of one store: connections, the writers' queue, the anchor, locks and sockets.

A write transaction is: wait in the writers' queue, BEGIN IMMEDIATE, the work, the commit counter, COMMIT
(this syncs the log), the anchor, let the next writer in. If we die before COMMIT returns, SQLite discards
the work or keeps all of it; nothing was acknowledged either way.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TypeVar

import apsw

from ninelives.core.clock import Clock
from ninelives.core.errors import (
    Corrupt,
    SchemaMismatch,
    StoreBroken,
    StoreError,
    StoreUnsafe,
    UsageError,
)
from ninelives.stores.durable_files import sync_directory
from ninelives.stores.shared import rows
from ninelives.stores.shared.pool import OPEN, Opened
from ninelives.stores.sqlite import checks
from ninelives.stores.sqlite.files import anchor, paths, schema, structure
from ninelives.stores.sqlite.files.checkpointer import FRAME_BYTES, LOG_BYTES, LOG_PAGES, Checkpointer
from ninelives.stores.sqlite.files.connection import (
    APPLICATION_ID,
    commits_in_file,
    connect,
    translate,
    translated,
)
from ninelives.stores.sqlite.files.session_locks import SessionLocks
from ninelives.stores.sqlite.files.wakeups import READERS, Datagrams
from ninelives.stores.sqlite.files.write_queue import WritersQueue
from ninelives.stores.sqlite.transaction import Transaction

_SHARED_AT, _SHARED_BYTES = 0x40000002, 510  # the bytes that SQLite locks while a database is open
_LEAST_ROOM_BYTES, _AHEAD_PAGES = 1 << 20, 16
Answer = TypeVar("Answer")
Work = Callable[[Transaction], Answer]


class Database(Opened):
    """Everything that is open, and how to read and write through it."""

    def __init__(
        self, path: str | Path, clock: Clock, lock_timeout_seconds: float, steps: Sequence[str]
    ) -> None:
        super().__init__()
        self._clock = clock
        self._steps = steps
        self._counted: tuple[rows.Row, bytes] | None = None
        self._busy_ms = int(lock_timeout_seconds * 1000)
        self._writing = threading.Lock()
        self._reading = threading.Lock()
        # No room is made until `fill_log`: a process that only
        # reads or runs one command must not fill a log with zeros.
        self._log_pages, self._room_pages = 0, sys.maxsize
        with ExitStack() as undo:
            try:
                self._open_all(path, lock_timeout_seconds, undo)
            except OSError as error:
                raise paths.not_possible(Path(path), error) from error
            undo.pop_all()
        OPEN.add(self)

    def _open_all(self, path: str | Path, lock_timeout_seconds: float, undo: ExitStack) -> None:
        """Open everything; if something fails, `undo` closes what was opened before."""
        _refuse_foreign(paths.named(path))
        self.paths = paths.locate(path)
        self._queue = WritersQueue(self.paths.live, lock_timeout_seconds)
        undo.callback(self._queue.close)
        self._queue.acquire()
        try:
            with translated():
                self.migrated = self._open_database(undo)
        finally:
            self._queue.release()
        self.locks = SessionLocks(self.paths.live)
        self.wake = Datagrams(self.paths.live, f"{self._pid}-{os.urandom(6).hex()}")
        undo.callback(self.wake.close)
        self._readers: Datagrams | None = None
        self._checkpointer = Checkpointer(
            self.paths.live, self.connect, self._exclusively, self._copied, self._fail
        )
        # Last: a migration above may write many pages, and the hook needs the checkpointer.
        self._writer.set_wal_hook(self._logged)

    def _open_database(self, undo: ExitStack) -> tuple[int, int]:
        """Create the database if there is none, migrate it, and compare it with its anchor."""
        if not self.paths.database.exists():
            # An anchor with commits proves that a database was here:
            # an empty one in its place would repeat all work.
            paths.refuse_lost(self.paths)
            self._create()
        self.inode = _identity(self.paths.database)
        if self.inode in _INHERITED:
            raise StoreUnsafe(
                f"{self.paths.database} was open in the parent process when this one was forked",
                remedy="SQLite would take its locks for ours: open the store after fork, or start by spawn",
            )
        in_file: int | None = None
        is_first = False
        if not _is_open(self.inode):
            # Otherwise not: closing any descriptor of a file drops SQLite's locks on it for this process.
            paths.inspect(self.paths, APPLICATION_ID)
            is_first = not _is_locked(self.paths.database)
            in_file = commits_in_file(self.paths.database)
        paths.keep_private(self.paths)
        _CONNECTED[self.inode] += 1  # still under the writers' lock, so that the next `_is_open` sees it
        undo.callback(_disconnected, self.inode)
        self._writer = self.connect()
        undo.callback(self._writer.close)
        if is_first and self.paths.database.stat().st_size <= structure.AT_OPEN_BYTES:
            # Only the first process pays for it: every later open
            # would cost a tenth of a second for the same answer.
            structure.require_sound(self._writer)
        versions = schema.migrate(self._writer, self._steps)
        # Again after the migration: it proves that what the steps made is what the code expects.
        schema.check(self._writer, self._steps)
        self._cursor = self._writer.cursor()
        row = Transaction(self._cursor, 0).one("read_store")
        if row is None:
            raise Corrupt(
                f"{self.paths.database} has lost the row of its store table",
                remedy="Restore it from a backup",
            )
        store_id, self._commits = row[0], row[2]
        # Before the anchor is opened for writing:
        # the next commit would raise it over the evidence of a lost tail.
        self._compare(store_id, in_file)
        self._anchor = anchor.Anchor(self.paths.anchor, store_id)
        undo.callback(self._anchor.close)
        if in_file is not None:
            self._anchor.write_copied(in_file)  # closing the last connection copies the log unrecorded
        # A connection of its own: a long read must not wait
        # for a writer's sync, nor see its open transaction.
        self._reader = self.connect()
        undo.callback(self._reader.close)
        return versions

    def _compare(self, store_id: bytes, in_file: int | None) -> None:
        try:
            anchor.compare(self.paths.anchor, store_id, self._commits, in_file)
        except FileNotFoundError:
            # A tool copied only the database. What the copy lacks cannot be detected.
            anchor.create(self.paths.anchor, store_id, self._commits, in_file or 0)

    def _create(self) -> None:
        """Create a database under another name, then rename it: it exists whole or not at all."""
        draft = self.paths.database.with_name(self.paths.database.name + "-new")
        for leftover in (draft, Path(f"{draft}-wal"), Path(f"{draft}-shm")):
            # SQLite would replay a log that a killed process left under this name into the new file.
            leftover.unlink(missing_ok=True)
        os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
        store_id = os.urandom(16)
        connection = connect(draft, create=True)
        try:
            schema.create(connection, self._steps, store_id)
        finally:
            connection.close()
        # The name must never lead to content that a power cut can still take away.
        paths.sync_file(draft)
        anchor.create(self.paths.anchor, store_id)
        # CRASH: an anchor of zero commits and no database; the next start creates both again.
        draft.rename(self.paths.database)
        sync_directory(self.paths.database.parent)

    def connect(self) -> apsw.Connection:
        """Open another connection to the database."""
        return connect(self.paths.database, busy_ms=self._busy_ms)

    def write(self, work: Work[Answer], *, urgent: bool = False) -> Answer:
        """Run a writing transaction; it is durable when this returns."""
        if self._is_closed or self._failure is not None or self._pid != os.getpid():
            self.require()
        with self._writing:
            self._queue.acquire(urgent=urgent)
            try:
                # Read the clock in the queue's order: a time from before
                # the wait could be older than one that is already written.
                tx = Transaction(self._cursor, self._clock.now_ms())
                answer = self._transact(tx, work)
                if self._log_pages >= self._room_pages:
                    self._make_room()
            finally:
                self._queue.release()
        # After the locks are free: a worker that wakes at once would only queue behind us.
        if tx.wakes:
            self.wake.send()
        elif tx.emits:
            self.wake.send(only_readers=True)
        return answer

    def _transact(self, tx: Transaction, work: Work[Answer]) -> Answer:
        writer, cursor = self._writer, self._cursor
        try:
            cursor.execute("BEGIN IMMEDIATE")
            # A claim that finds nothing must cost neither a counter nor a sync.
            before = writer.total_changes()
            answer = work(tx)
            if writer.total_changes() == before:
                cursor.execute("ROLLBACK")
                return answer
            commits = self._count(tx)
            cursor.execute("COMMIT")
        # Whatever ended the work (Ctrl-C too) must not leave a transaction open: the next BEGIN would fail.
        except BaseException as error:
            self._roll_back(writer, cursor)
            if isinstance(error, apsw.Error):
                raise self._noted(translate(error, writer)) from error
            raise
        # CRASH: durable, not yet acknowledged; the anchor is one behind, which is allowed.
        self._anchor.write(commits)
        self._commits = commits
        return answer

    def _count(self, tx: Transaction) -> int:
        commits = self._count_known(tx)
        if commits is not None:
            return commits
        # The version is part of the condition: a process of the old schema must not write after a migration.
        counted = tx.one("count_commit", (len(self._steps),))
        if counted is None:
            raise SchemaMismatch(
                "another process has migrated the store to another schema version",
                remedy="End this process and start it with the new version of ninelives",
            )
        commits = int(counted[2])
        self._counted = counted[:-1], counted[-1]
        # The file was put back under us, by a restore or a copy: what we acknowledged since is not in it.
        if commits <= self._commits:
            raise Corrupt(
                f"the database went back: this process has seen commit {self._commits}",
                remedy=anchor.remedy(self.paths.anchor),
            )
        return commits

    def _count_known(self, tx: Transaction) -> int | None:
        """Count if the store's row is as we left it: its check is then computed here, not in SQL."""
        if self._counted is None:
            return None
        (store_id, version, commits, *others), check = self._counted
        # Forget it first: if this transaction fails, the row is not what we are about to compute.
        self._counted = None
        row = (store_id, version, commits + 1, *others)
        made = checks.seal("store", row)
        # `_commits` moves only after COMMIT: a row that was counted and rolled back is not taken for known.
        if commits != self._commits or tx.one("count_known", (commits + 1, made, version, check)) is None:
            return None
        self._counted = row, made
        return int(commits + 1)

    def _roll_back(self, writer: apsw.Connection, cursor: apsw.Cursor) -> None:
        try:
            if writer.in_transaction:
                cursor.execute("ROLLBACK")
        except apsw.Error as error:
            # The connection still has our half of a transaction: the next commit would include it.
            self._fail(StoreBroken(f"a transaction could not be rolled back: {error}"))

    def fill_log(self) -> None:
        """Preallocate the log from now on: for a process that is going to write much."""
        self._exclusively(self._make_room)

    def _make_room(self) -> None:
        """Give the log as much room again as it has used, up to its full size.

        Runs under the writers' lock and SQLite's: a stock tool that writes knows only the latter, and our
        zeros must not overwrite what it has just written. It only saves syncs, and the commit before it is
        durable: a fault of the disk is left to the next commit, which reports it.
        """
        # Twice what was used: 8 MiB of zeros at once cost a short script more than its steps (decision 5).
        size = min(LOG_BYTES, max(_LEAST_ROOM_BYTES, 2 * self._log_pages * FRAME_BYTES))
        try:
            self._cursor.execute("BEGIN IMMEDIATE")
        except apsw.Error:
            return  # above all, a stock tool is writing; the next commit tries again
        try:
            with self.expected():
                paths.fill_log(self.paths, size)
        except OSError:
            return
        finally:
            self._roll_back(self._writer, self._cursor)
        # Some pages ahead: the commit that asks for room must itself still fit into the old one.
        self._room_pages = size // FRAME_BYTES - _AHEAD_PAGES if size < LOG_BYTES else sys.maxsize

    def read(self, work: Work[Answer]) -> Answer:
        """Run a reading transaction: one consistent view."""
        self.require()
        with self._reading:
            cursor = self._reader.cursor()
            try:
                cursor.execute("BEGIN")
                return work(Transaction(cursor, self._clock.now_ms()))
            except apsw.Error as error:
                raise translate(error, self._reader) from error
            finally:
                if self._reader.in_transaction:
                    cursor.execute("ROLLBACK")

    def wait_for_output(self, timeout_seconds: float) -> bool:
        """Wait for an output wake-up. The listener is created on first use: few processes need it."""
        self.require()
        with self._reading:
            if self._readers is None:
                with self.expected():
                    self._readers = Datagrams(self.paths.live, f"{self._pid}-{os.urandom(6).hex()}", READERS)
        return self._readers.wait(timeout_seconds)

    def require_same_file(self) -> None:
        """Check that the path still leads to the file that is open.

        Raises StoreBroken when it was moved, removed or replaced: other processes would use another file.
        """
        try:
            is_same = _identity(self.paths.database) == self.inode
        except FileNotFoundError:
            is_same = False
        if not is_same:
            raise self._noted(
                StoreBroken(
                    f"{self.paths.database} was moved or replaced under this process",
                    remedy="End the process; restore the files together before you start it again",
                )
            )

    @contextmanager
    def expected(self) -> Iterator[None]:
        """Translate errors of opening the store's own files: say which is missing, and why.

        Raises StoreBroken; StoreUnavailable when no more files may be opened.
        """
        try:
            yield
        except FileNotFoundError as error:
            # If the database itself was moved, say that: the missing file beside it is only a consequence.
            self.require_same_file()
            raise self._noted(
                StoreBroken(
                    f"{error.filename or self.paths.live} was removed under this process",
                    remedy="End the process and start it again; do not touch the files beside the database",
                )
            ) from error
        except OSError as error:
            if error.errno in paths.TOO_MANY_FILES:
                raise paths.too_many_files(Path(error.filename or self.paths.live), error) from error
            raise

    def close(self) -> None:
        """Close everything that is open in this process; a second call does nothing."""
        if self._is_closed or not self.is_ours:
            return
        self._is_closed = True
        OPEN.discard(self)
        self.wake.close()
        if self._readers is not None:
            self._readers.close()
        # Before the connections: its thread takes `_writing`, and must not find them closed.
        self._checkpointer.close()
        with self._writing, self._reading:
            for connection in (self._reader, self._writer):
                connection.close()
            _disconnected(self.inode)
            for part in (self._anchor, self._queue, self.locks):
                part.close()

    def disown(self) -> None:
        """In a forked child: close what belongs to the parent, and never touch the connections.

        Closing a connection here could act on the parent's files, so it is leaked on purpose.
        """
        for part in (self.locks, self._queue, self._anchor):
            part.close()
        self._checkpointer.disown()
        self.wake.disown()
        if self._readers is not None:
            self._readers.disown()
        for connection in (self._reader, self._writer):
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))

    def _copied(self, connection: apsw.Connection) -> None:
        """Record, under the writers' lock, that the whole log is in the database."""
        row = Transaction(connection.cursor(), 0).one("read_store")
        if row is not None:
            self._anchor.write_copied(row[2])

    def _exclusively(self, work: Callable[[], None]) -> None:
        self.require()
        with self._writing:
            self._queue.acquire()
            try:
                work()
            finally:
                self._queue.release()

    def _logged(self, _connection: apsw.Connection, _database: str, pages: int) -> int:
        self._log_pages = pages
        if pages >= LOG_PAGES:
            self._checkpointer.grown(pages)
        return apsw.SQLITE_OK

    def _noted(self, error: StoreError) -> StoreError:
        """Remember an error after which this process must not continue."""
        if isinstance(error, StoreBroken):
            self._fail(error)
        return error

    def _fail(self, error: StoreError) -> None:
        # The first failure is the cause; later ones follow from it.
        self._failure = self._failure or error


# POSIX locks are not inherited by a child, but SQLite's memory of them is: a child that opened the same file
# would write without a lock that it believes to hold.
_INHERITED: set[tuple[int, int]] = set()
_CONNECTED: Counter[tuple[int, int]] = Counter()
"""How many objects of this process have connections to a file, by device and inode."""


def _identity(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_dev, found.st_ino


def _is_open(inode: tuple[int, int]) -> bool:
    return _CONNECTED[inode] > 0


def is_open_here(path: Path) -> bool:
    """Return whether this process has a database open.

    Then only SQLite may open the file: closing any other descriptor of it drops SQLite's locks.
    """
    return _is_open(_identity(path))


def require_closed(path: Path) -> None:
    """Check that no process has a database open.

    Raises UsageError. SQLite holds a lock for as long as a connection is open; we test that lock.
    """
    try:
        inode = _identity(path)
    except FileNotFoundError:
        raise UsageError(f"there is no database {path}", remedy="Name the database file") from None
    if not _is_open(inode) and not _is_locked(path):
        return
    raise UsageError(f"{path} is open in a process", remedy="End every process that uses the store first")


def _refuse_foreign(where: paths.StorePaths) -> None:
    """Refuse a file that is no store before anything is created beside it.

    A store that is being created, or is open anywhere, has its directory of locks already: it was made first.
    """
    if where.database.exists() and not where.live.is_dir() and not _is_open(_identity(where.database)):
        paths.inspect(where, APPLICATION_ID)


def _is_locked(path: Path) -> bool:
    """Return whether another process has the database open. Do not call this if this process has."""
    # Closing this descriptor drops every POSIX lock that this process has on the file: see the docstring.
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, _SHARED_BYTES, _SHARED_AT)
    except OSError:
        return True
    finally:
        os.close(fd)
    return False


def _disconnected(inode: tuple[int, int]) -> None:
    _CONNECTED[inode] -= 1


def _inherit() -> None:
    _INHERITED.update(+_CONNECTED)
    _CONNECTED.clear()


os.register_at_fork(after_in_child=_inherit)
