"""Connections: opened one way, with every setting read back, and every driver error translated.

The file is an ordinary one: any SQLite may read it, copy it or write its own tables into it, while we use
it and after we were killed. What we read is verified row by row (checks.py).
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

PAGE_BYTES = 4096  # a commit writes whole pages to the log: small ones keep it close to the disk
APPLICATION_ID = 0x394C4956  # "9LIV"
_PRAGMAS: tuple[tuple[str, object], ...] = (
    ("journal_mode", "wal"),
    ("synchronous", 2),
    ("wal_autocheckpoint", 0),
    ("cell_size_check", 1),
    ("trusted_schema", 0),
    ("recursive_triggers", 0),
    ("temp_store", 2),
    ("cache_size", -32768),
    ("locking_mode", "normal"),
    ("foreign_keys", 0),  # a guest's table may refer to ours, and must not change them through us
)
_FULL = {errno.ENOSPC, errno.EFBIG, errno.EDQUOT}


def connect(path: Path, *, create: bool = False, busy_ms: int = 5000) -> apsw.Connection:
    """Open a connection and assert its settings.

    Raises StoreUnsafe when a setting does not hold; Corrupt, StoreUnavailable.
    """
    with translated(path=path):
        flags = apsw.SQLITE_OPEN_READWRITE | (apsw.SQLITE_OPEN_CREATE if create else 0)
        connection = apsw.Connection(_name(path), flags=flags)
        connection.set_busy_timeout(busy_ms)
        connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
        connection.config(apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0)
        connection.config(apsw.SQLITE_DBCONFIG_DQS_DML, 0)
        checks.register(connection)
        if create:
            connection.pragma("page_size", PAGE_BYTES)
            connection.pragma("application_id", APPLICATION_ID)
        if connection.pragma("journal_mode") != "wal":
            # Ours when it is new, and when another program took it out of WAL mode.
            connection.pragma("journal_mode", "wal")
        for name, wanted in _PRAGMAS:
            _assert_pragma(connection, path, name, wanted)
        return connection


def commits_in_file(path: Path) -> int | None:
    """Return the last commit that is in the database file itself, its log left aside.

    None when it cannot be told: a copy from the log was under way when somebody died.
    """
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    try:
        alone = apsw.Connection(f"file:{quote(os.fsencode(path))}?immutable=1", flags=flags)
        try:
            found = [checks.VERIFIED["read_store"](row) for row in alone.execute(SQL["read_store"])]
        finally:
            alone.close()
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
    # A pragma that is not understood or not possible fails without an error: only what is read back counts.
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
    """Turn the driver's errors into ours; `path` is what is being opened."""
    try:
        yield
    except apsw.Error as error:
        if path is not None and isinstance(error, apsw.CantOpenError):
            raise _cannot_open(path, error) from error
        raise translate(error, connection) from error
    except UnicodeDecodeError as error:
        raise no_text(error) from error


def no_text(error: UnicodeDecodeError) -> Corrupt:
    """Return our error for a text in the file that is none."""
    return _damaged(f"a text is damaged: {error}")


def translate(error: apsw.Error, connection: apsw.Connection | None = None) -> StoreError:
    """Return our error for one of the driver's."""
    code = getattr(error, "extendedresult", 0)
    told = f"SQLite: {error}"
    if isinstance(error, apsw.IOError):
        return _translate_io(code, told, connection)
    if isinstance(error, apsw.CorruptError | apsw.NotADBError | apsw.FormatError):
        return _damaged(told)
    if isinstance(error, apsw.FullError):
        return _full("SQLite: database or disk is full")  # the driver's own text may be "not an error"
    if isinstance(error, apsw.BusyError | apsw.LockedError | apsw.CantOpenError | apsw.ProtocolError):
        return StoreUnavailable(told, remedy="Nothing was written; try again")
    if isinstance(error, apsw.ReadOnlyError | apsw.PermissionsError | apsw.AuthError):
        return StoreUnsafe(told, remedy="Give the process write access to the database and its directory")
    if isinstance(error, apsw.TooBigError | apsw.ConstraintError | apsw.MismatchError | apsw.RangeError):
        return BadRecord(told)
    if isinstance(error, apsw.SQLError) and "JSON" in told:
        return _damaged(told)  # a row's own JSON: what we bind is always sound
    return StoreBroken(told, remedy="End the process and start it again")


def _cannot_open(path: Path, error: apsw.CantOpenError) -> StoreError:
    # The driver does not say why. What was opened on the way is still open here, so the cause is, too. The
    # database itself is not opened: closing it would drop the locks that SQLite holds for this process.
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


def _translate_io(code: int, told: str, connection: apsw.Connection | None) -> StoreError:
    if code in (apsw.SQLITE_IOERR_DATA, apsw.SQLITE_IOERR_CORRUPTFS, apsw.SQLITE_IOERR_SHORT_READ):
        return _damaged(told)
    if code == apsw.SQLITE_IOERR_WRITE and connection is not None and connection.system_errno in _FULL:
        return _full(told)
    if code == apsw.SQLITE_IOERR_SHMSIZE:
        return _full(
            f"{told}: no room for the index of the log"
        )  # it could not be opened: nothing was written
    # Above all a failed sync: the kernel has dropped the pages and the next sync would say all is well.
    return StoreBroken(
        f"{told}: whether the last write is durable is unknown",
        remedy="The process must end; what was acknowledged is read again at the next start",
    )


def _full(told: str) -> StoreUnavailable:
    return StoreUnavailable(
        told, remedy="Nothing was written and nothing is lost. Free disk space; it goes on then"
    )


def _damaged(told: str) -> Corrupt:
    return Corrupt(
        f"the database is damaged: {told}",
        remedy="What could not be read was not used; other runs go on. Restore the store from a backup",
    )
