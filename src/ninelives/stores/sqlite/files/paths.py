"""The paths of a store's files, and whether the database there can be trusted.

    runs.db          the database (SQLite adds -wal and -shm while it is open)
    runs.db-anchor   the number of the last commit
    runs.db-live/    locks and sockets of the processes that use it now; nothing in it outlives them

A new database is created under another name, completed and synced, and then renamed. If we die before that,
there is no database. An empty or partial file is therefore never ours.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from ninelives.core.errors import Corrupt, StoreUnavailable, StoreUnsafe, UsageError
from ninelives.stores.durable_files import sync_directory
from ninelives.stores.sqlite.files import anchor

_REMOTE = frozenset(
    (
        *("nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "lustre", "glusterfs", "beegfs"),
        *("gpfs", "ocfs2", "fuse.sshfs", "fuse.glusterfs", "fuse.s3fs", "fuse.rclone", "fuse.ceph"),
    )
)
TOO_MANY_FILES = (errno.EMFILE, errno.ENFILE)
DEFAULT_DIRECTORY = ".ninelives"
_OCTAL = re.compile(rb"\\([0-7]{3})")
HEADER = b"SQLite format 3\x00"
_APPLICATION_AT = 68
# SQLite takes no longer path since the checksum VFS is gone (decision 20).
_LONGEST = 500


class StorePaths(Struct, frozen=True):
    """The files of one store."""

    database: Path
    anchor: Path
    live: Path


def named(path: str | Path) -> StorePaths:
    """Return the paths for a database; create nothing.

    Raises StoreUnsafe on a filesystem that other hosts can write to; StoreUnavailable for what is no file.
    """
    if "\0" in str(path):
        raise UsageError(f"{str(path)!r} is not a path", remedy="Remove the NUL character")
    # The anchor and the log belong beside the file itself, not beside a symbolic link to it.
    database = Path(os.path.realpath(path))
    if database.is_symlink():
        raise _not_ours(database, os.strerror(errno.ELOOP))
    where = StorePaths(
        database, database.with_name(database.name + "-anchor"), database.with_name(database.name + "-live")
    )
    if len(os.fsencode(database)) > _LONGEST:
        raise StoreUnsafe(
            f"the path {database} is longer than SQLite takes ({_LONGEST} bytes)",
            remedy="Keep the store in a directory with a shorter path",
        )
    # Asked from the kernel: on a network filesystem, flock and shared memory
    # work between processes of one host only, and two hosts would both write.
    refuse_remote(database, mounted())
    if database.is_dir():
        raise _not_ours(database, os.strerror(errno.EISDIR))
    return where


def locate(path: str | Path) -> StorePaths:
    """Return the paths for a database, after creating its directories.

    Raises as `named` does; OSError where we may not write.
    """
    where = named(path)
    database = where.database
    make_directories(database.parent)
    if database.parent.name == DEFAULT_DIRECTORY and not database.exists():
        keep_out_of_git(database.parent)
    make_directories(where.live)
    return where


def keep_out_of_git(directory: Path) -> None:
    """Make git ignore the directory that we create beside people's sources; an existing file stays."""
    with suppress(OSError), (directory / ".gitignore").open("x") as file:
        file.write("*\n")


def make_directories(path: Path) -> None:
    """Create a directory and its parents, private to this user, and make that durable."""
    if path.is_dir():
        return
    make_directories(path.parent)
    with suppress(FileExistsError):
        path.mkdir(mode=0o700)
        path.chmod(0o700)  # regardless of the umask
    # A directory whose name a power cut takes away would take the store with it.
    sync_directory(path.parent)


def sync_file(path: Path) -> None:
    """Make the content of a file durable."""
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def refuse_remote(path: Path, mountinfo: Iterable[str]) -> None:
    """Refuse a filesystem where SQLite's locks and log are not reliable.

    Raises StoreUnsafe.
    """
    _, kind = filesystem_of(path, mountinfo)
    if kind in _REMOTE:
        raise StoreUnsafe(
            f"{path} is on {kind}, where SQLite's locks are not reliable",
            remedy="Keep the store on a local disk; for several machines use PostgreSQL",
        )


def mounted() -> list[str]:
    """Return the kernel's lines about the mounted filesystems."""
    # Not `splitlines`: a mount point may contain what only Unicode takes for the end of a line.
    return os.fsdecode(Path("/proc/self/mountinfo").read_bytes()).rstrip("\n").split("\n")


def filesystem_of(path: Path, mountinfo: Iterable[str]) -> tuple[str, str]:
    """Return the mount point and the type of the filesystem that a path is on."""
    best, kind = "", "unknown"
    resolved = os.path.realpath(path)
    for line in mountinfo:
        left, _, right = line.partition(" - ")
        escaped = os.fsencode(left.split(" ")[4])
        point = os.fsdecode(_OCTAL.sub(lambda found: bytes([int(found[1], 8)]), escaped))
        inside = resolved == point or resolved.startswith(point.rstrip("/") + "/")
        # The longest mount point counts, and of equal ones the last: it covers the earlier.
        if inside and len(point) >= len(best):
            best, kind = point, right.split()[0]
    return best, kind


def inspect(where: StorePaths, application_id: int) -> None:
    """Check an existing database file before SQLite opens it.

    Raises StoreUnsafe when it cannot be ours to write; Corrupt when it is empty or not a database.
    """
    path = where.database
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except PermissionError as error:
        raise _read_only(path, error) from error
    except OSError as error:
        if error.errno in TOO_MANY_FILES:
            raise too_many_files(path, error) from error
        raise (
            _read_only(path, error) if error.errno == 30 else _not_ours(path, str(error.strerror))
        ) from error
    try:
        found = os.fstat(fd)
        header = os.pread(fd, 100, 0) if stat.S_ISREG(found.st_mode) else b""
    finally:
        os.close(fd)
    if not stat.S_ISREG(found.st_mode):
        raise _not_ours(path, "not a file")
    # SQLite would take an empty file for a new database, and start over in silence.
    if found.st_size == 0:
        raise Corrupt(
            f"{path} is empty: no store of ours ever is",
            remedy="Restore it from a backup; if it was never a store, remove it",
        )
    if len(header) < 100 or not header.startswith(HEADER):
        raise Corrupt(
            f"{path} is not a SQLite database", remedy="Restore it from a backup, or name another file"
        )
    if int.from_bytes(header[_APPLICATION_AT : _APPLICATION_AT + 4]) != application_id:
        raise Corrupt(
            f"{path} is a SQLite database, but not a Nine Lives store (or its header is damaged)",
            remedy="Name another file, or restore it from a backup",
        )


def keep_private(where: StorePaths) -> None:
    """Remove other users' access to a database: a copy has whatever mode its tool gave it.

    Raises StoreUnsafe when we may not change it.
    """
    mode = stat.S_IMODE(where.database.stat().st_mode)
    if mode & 0o077:
        try:
            where.database.chmod(0o600)
        except OSError:
            raise StoreUnsafe(
                f"{where.database} can be read by others (mode {mode:04o})",
                remedy=f"chmod 600 {where.database}",
            ) from None


def refuse_lost(where: StorePaths) -> None:
    """Refuse to create a new database where one has been.

    Raises Corrupt when the anchor counts commits of a database that is gone.
    """
    try:
        _, commits, _ = anchor.read(where.anchor)
    except FileNotFoundError:
        return
    if commits > 0:
        raise Corrupt(
            f"{where.database} is gone, and its anchor counts {commits} commits",
            remedy=f"Restore the database; to begin a new one, remove {where.anchor}",
        )


def fill_log(where: StorePaths, size: int) -> None:
    """Preallocate the log: overwriting needs one sync less than growing a file. See docs/decisions/0005.

    The caller holds SQLite's write lock, so no other process writes there meanwhile. The zeros are synced
    with the next commit. If we die here, the log is shorter and is filled up next time; SQLite reads zeros as
    the end of the log. On a full disk the log stays as it is.
    """
    try:
        fd = os.open(f"{where.database}-wal", os.O_WRONLY | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in TOO_MANY_FILES:
            return  # this only costs a sync
        raise
    try:
        missing = size - os.fstat(fd).st_size
        if missing > 0:
            with suppress(OSError):
                os.pwrite(fd, bytes(missing), size - missing)
    finally:
        os.close(fd)


def not_possible(path: Path, error: OSError) -> StoreUnsafe | StoreUnavailable:
    """Return the error for a path where the files cannot be opened."""
    if error.errno in TOO_MANY_FILES:
        return too_many_files(path, error)
    return StoreUnsafe(
        f"cannot keep a store at {path}: {error.strerror} ({error.filename or path})",
        remedy="The directory of the database must be on a local disk and writable for this user",
    )


def too_many_files(path: Path, error: OSError) -> StoreUnavailable:
    """Return the error for a process, or a machine, that may open no more files."""
    limited = "this process" if error.errno == errno.EMFILE else "this machine"
    return StoreUnavailable(
        f"cannot open {path}: {limited} has too many open files",
        remedy="Nothing was written. Raise the limit (ulimit -n, LimitNOFILE=), or close what is not needed",
    )


def _read_only(path: Path, error: OSError) -> StoreUnsafe:
    return StoreUnsafe(f"{path} is read-only: {error.strerror}", remedy="Give this user write access to it")


def _not_ours(path: Path, why: str) -> StoreUnavailable:
    return StoreUnavailable(f"cannot open {path}: {why}", remedy="Name a file on a local disk")
