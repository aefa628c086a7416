"""Connections: opened in one way, with every setting read back and every driver error translated.

The file is an ordinary one: any SQLite may read it, copy it or write its own tables into it, while we use it
and after we were killed. What we read is verified row by row (checks.py). See docs/decisions/0020.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import apsw

from ninelives.core.errors import (
    BadRecord,
    Corrupt,
    StoreBroken,
    StoreError,
    StoreUnavailable,
    StoreUnsafe,
)
from ninelives.stores.sqlite import checks
from ninelives.stores.sqlite.files import paths
from ninelives.stores.sqlite.queries import SQL

PAGE_BYTES = 4096  # a commit writes whole pages to the log, so small pages keep the log small
APPLICATION_ID = 0x394C4956  # "9LIV"
_PRAGMAS: tuple[tuple[str, object], ...] = (
    ("journal_mode", "wal"),
    ("synchronous", 2),  # FULL: every COMMIT syncs the log
    ("wal_autocheckpoint", 0),  # the checkpointer does it, off the hot path
    # Find a damaged page when it is read, not when a cell that reaches beyond it is used.
    ("cell_size_check", 1),
    ("trusted_schema", 0),  # code that is in a file must never run
    ("recursive_triggers", 0),
    ("temp_store", 2),
    ("cache_size", -32768),
    ("locking_mode", "normal"),
    ("foreign_keys", 0),  # another program's table may refer to ours, and must not change them through us
)
# A full disk is not a broken one: nothing was written, and the same commit succeeds when there is room.
_FULL = {errno.ENOSPC, errno.EFBIG, errno.EDQUOT}


def connect(path: Path, *, create: bool = False, busy_ms: int = 5000) -> apsw.Connection:
    """Open a connection and assert its settings.

    Raises StoreUnsafe when a setting does not hold; Corrupt, StoreUnavailable.
    """
    with translated(path=path):
        flags = apsw.SQLITE_OPEN_READWRITE | (apsw.SQLITE_OPEN_CREATE if create else 0)
        connection = apsw.Connection(_name(path), flags=flags)
        connection.set_busy_timeout(busy_ms)
        # No statement may write the schema table directly, or switch
        # the journal off: not even one that a file smuggles in.
        connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
        connection.config(apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0)
        # A misspelt "column" must be an error, not a string.
        connection.config(apsw.SQLITE_DBCONFIG_DQS_DML, 0)
        checks.register(connection)
        if create:
            connection.pragma("page_size", PAGE_BYTES)
            connection.pragma("application_id", APPLICATION_ID)
        if connection.pragma("journal_mode") != "wal":
            # Either the file is new, or another program took it out of WAL mode.
            connection.pragma("journal_mode", "wal")
        for name, wanted in _PRAGMAS:
            _assert_pragma(connection, path, name, wanted)
        return connection


def commits_in_file(path: Path) -> int | None:
    """Return the last commit that is in the database file itself, ignoring its log.

    None when it cannot be read: a process died while it copied the log into the file.
    """
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    try:
        # `immutable` makes SQLite ignore the log:
        # this is what the file alone would say after the log is lost.
        file_only = apsw.Connection(f"file:{quote(os.fsencode(path))}?immutable=1", flags=flags)
        try:
            found = [checks.VERIFIED["read_store"](row) for row in file_only.execute(SQL["read_store"])]
        finally:
            file_only.close()
    # Half-copied pages are no damage: the log still has them whole, and replaces them when it is read.
    except (apsw.Error, Corrupt, TypeError, UnicodeDecodeError):
        return None
    return int(found[0][2]) if found else None


def _name(path: Path) -> str:
    """Return a path as SQLite takes it: in UTF-8, whatever the locale."""
    try:
        return os.fsencode(path).decode()
    except UnicodeError:
        raise StoreUnsafe(
            f"the path {os.fsencode(path)!r} is not in UTF-8", remedy="Keep the store under another name"
        ) from None


def _assert_pragma(connection: apsw.Connection, path: Path, name: str, wanted: object) -> None:
    # SQLite ignores an unknown or impossible pragma without an error: only the value read back counts.
    if name != "journal_mode":
        connection.pragma(name, wanted)
    found = connection.pragma(name)
    if found != wanted:
        raise StoreUnsafe(
            f"{path}: SQLite has {name} = {found!r} where {wanted!r} is needed",
            remedy="Another program has changed the file, or this SQLite cannot do it; use a fresh store",
        )


@contextmanager
def translated(connection: apsw.Connection | None = None, *, path: Path | None = None) -> Iterator[None]:
    """Translate the driver's errors into ours; `path` is the file being opened."""
    try:
        yield
    except apsw.Error as error:
        if path is not None and isinstance(error, apsw.CantOpenError):
            raise _cannot_open(path, error) from error
        raise translate(error, connection) from error
    except UnicodeDecodeError as error:
        raise no_text(error) from error


def no_text(error: UnicodeDecodeError) -> Corrupt:
    """Return our error for text in the file that is not valid UTF-8."""
    return _damaged(f"a text is damaged: {error}")


def translate(error: apsw.Error, connection: apsw.Connection | None = None) -> StoreError:
    """Return our error for one of the driver's."""
    code = getattr(error, "extendedresult", 0)
    what = f"SQLite: {error}"
    if isinstance(error, apsw.IOError):
        return _translate_io(code, what, connection)
    if isinstance(error, apsw.CorruptError | apsw.NotADBError | apsw.FormatError):
        return _damaged(what)
    if isinstance(error, apsw.FullError):
        return _full("SQLite: database or disk is full")  # the driver's own text may be "not an error"
    if isinstance(error, apsw.BusyError | apsw.LockedError | apsw.CantOpenError | apsw.ProtocolError):
        return StoreUnavailable(what, remedy="Nothing was written; try again")
    if isinstance(error, apsw.ReadOnlyError | apsw.PermissionsError | apsw.AuthError):
        return StoreUnsafe(what, remedy="Give the process write access to the database and its directory")
    # The content is at fault, not the store: the committer halves the batch to find whose it is.
    if isinstance(error, apsw.TooBigError | apsw.ConstraintError | apsw.MismatchError | apsw.RangeError):
        return BadRecord(what)
    if isinstance(error, apsw.SQLError) and "JSON" in what:
        return _damaged(what)  # the JSON is a row's: what we bind is always valid
    # Unknown errors end the process: going on would be a guess about what is durable.
    return StoreBroken(what, remedy="End the process and start it again")


def _cannot_open(path: Path, error: apsw.CantOpenError) -> StoreError:
    # The driver does not say why. Its connection is still open here, so the cause can still be found. Do not
    # open the database itself: closing it would drop the locks that SQLite holds for this process.
    try:
        path.stat()
        os.close(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    except OSError as cause:
        if cause.errno in paths.TOO_MANY_FILES:
            return paths.too_many_files(path, cause)
        return StoreUnavailable(
            f"cannot open {path}: {cause.strerror}",
            remedy="Nothing was written. Put the file back; try again",
        )
    return StoreUnavailable(f"cannot open {path}: SQLite: {error}", remedy="Nothing was written; try again")


def _translate_io(code: int, what: str, connection: apsw.Connection | None) -> StoreError:
    if code in (apsw.SQLITE_IOERR_DATA, apsw.SQLITE_IOERR_CORRUPTFS, apsw.SQLITE_IOERR_SHORT_READ):
        return _damaged(what)
    if code == apsw.SQLITE_IOERR_WRITE and connection is not None and connection.system_errno in _FULL:
        return _full(what)
    if code == apsw.SQLITE_IOERR_SHMSIZE:
        # The database could not be opened, so nothing was written.
        return _full(f"{what}: no room for the index of the log")
    # Above all a failed sync: the kernel has dropped the pages, and the next sync would report success.
    return StoreBroken(
        f"{what}: whether the last write is durable is unknown",
        remedy="The process must end; the next start reads again what was acknowledged",
    )


def _full(what: str) -> StoreUnavailable:
    return StoreUnavailable(
        what, remedy="Nothing was written and nothing is lost. Free disk space; then it continues"
    )


def _damaged(what: str) -> Corrupt:
    return Corrupt(
        f"the database is damaged: {what}",
        remedy="What could not be read was not used; other runs continue. Restore the store from a backup",
    )
