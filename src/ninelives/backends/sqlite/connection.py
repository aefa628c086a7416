"""Connections: opened one way, with every setting read back, and every driver error translated.

Pages carry checksums (SQLite's own checksum VFS), verified on each read from the file: a flipped bit
in a row, an index or the schema is `Corrupt`, not another answer.
"""

from __future__ import annotations

import ctypes
import errno
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from urllib.parse import quote

import apsw
import apsw.sqlite_extra

from ninelives.backends.sqlite.queries import SQL
from ninelives.core.errors import (
    BadRecord,
    Corrupt,
    StoreBroken,
    StoreError,
    StoreUnavailable,
    StoreUnsafe,
)

PAGE_BYTES = 4096  # a commit writes whole pages to the log: small ones keep it close to the disk
APPLICATION_ID = 0x394C4956  # "9LIV"
_RESERVED_BYTES = 8
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
    ("checksum_verification", "1"),
)
_FULL = {errno.ENOSPC, errno.EFBIG, errno.EDQUOT}


def connect(path: Path, *, create: bool = False, busy_ms: int = 5000) -> apsw.Connection:
    """Open a connection and assert its settings.

    Raises StoreUnsafe when a setting does not hold; Corrupt, StoreUnavailable.
    """
    with translated():
        flags = apsw.SQLITE_OPEN_READWRITE | (apsw.SQLITE_OPEN_CREATE if create else 0)
        connection = apsw.Connection(str(path), flags=flags, vfs=_checksum_vfs())
        connection.set_busy_timeout(busy_ms)
        connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
        connection.config(apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0)
        if create:
            _control(connection, apsw.SQLITE_FCNTL_RESERVE_BYTES, _RESERVED_BYTES)
            connection.pragma("page_size", PAGE_BYTES)
            connection.pragma("application_id", APPLICATION_ID)
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
        alone = apsw.Connection(f"file:{quote(str(path))}?immutable=1", flags=flags, vfs=_checksum_vfs())
        try:
            found = alone.execute(SQL["read_store"]).fetchall()
        finally:
            alone.close()
    except apsw.Error:
        return None
    return int(str(found[0][2])) if found else None


def _assert_pragma(connection: apsw.Connection, path: Path, name: str, wanted: object) -> None:
    # A pragma that is not understood or not possible fails without an error: only what is read back counts.
    if name not in ("journal_mode", "checksum_verification"):
        connection.pragma(name, wanted)
    found = connection.pragma(name)
    if found != wanted:
        raise StoreUnsafe(
            f"{path}: SQLite has {name} = {found!r} where {wanted!r} is needed",
            remedy="Another program has changed the file, or this SQLite cannot do it; use a fresh store",
        )


def _control(connection: apsw.Connection, operation: int, value: int) -> None:
    holder = ctypes.c_int(value)
    connection.file_control("main", operation, ctypes.addressof(holder))


@cache
def _checksum_vfs() -> str:
    if not apsw.sqlite_extra.has("cksumvfs"):
        raise StoreUnsafe(
            "this build of apsw has no checksum VFS", remedy="Install apsw from its wheel: pip install apsw"
        )
    loader = apsw.Connection(":memory:")
    apsw.sqlite_extra.load(loader, "cksumvfs")
    loader.close()
    return "cksmvfs"


@contextmanager
def translated(connection: apsw.Connection | None = None) -> Iterator[None]:
    """Turn the driver's errors into ours."""
    try:
        yield
    except apsw.Error as error:
        raise translate(error, connection) from error


def translate(error: apsw.Error, connection: apsw.Connection | None = None) -> StoreError:
    """Return our error for one of the driver's."""
    code = getattr(error, "extendedresult", 0)
    told = f"SQLite: {error}"
    if isinstance(error, apsw.IOError):
        return _translate_io(code, told, connection)
    if isinstance(error, apsw.CorruptError | apsw.NotADBError | apsw.FormatError):
        return _damaged(told)
    if isinstance(error, apsw.FullError):
        return _full(told)
    if isinstance(error, apsw.BusyError | apsw.LockedError | apsw.CantOpenError | apsw.ProtocolError):
        return StoreUnavailable(told, remedy="Nothing was written; try again")
    if isinstance(error, apsw.ReadOnlyError | apsw.PermissionsError | apsw.AuthError):
        return StoreUnsafe(told, remedy="Give the process write access to the database and its directory")
    if isinstance(error, apsw.TooBigError | apsw.ConstraintError | apsw.MismatchError | apsw.RangeError):
        return BadRecord(told)
    if isinstance(error, apsw.SQLError) and "JSON" in told:
        return _damaged(told)  # a row's own JSON: what we bind is always sound
    return StoreBroken(told, remedy="End the process and start it again")


def _translate_io(code: int, told: str, connection: apsw.Connection | None) -> StoreError:
    if code in (apsw.SQLITE_IOERR_DATA, apsw.SQLITE_IOERR_CORRUPTFS, apsw.SQLITE_IOERR_SHORT_READ):
        return _damaged(told)
    if code == apsw.SQLITE_IOERR_WRITE and connection is not None and connection.system_errno in _FULL:
        return _full(told)
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
