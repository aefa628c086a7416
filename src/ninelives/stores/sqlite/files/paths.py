"""The place of a database: its path, what stands beside it, and whether it can be trusted there.

    runs.db          the database (SQLite adds -wal and -shm while it is open)
    runs.db-anchor   the number of the last commit
    runs.db-live/    locks and sockets of the processes that use it now; nothing in it outlives them

A new database is made under another name, whole and synced, and then renamed: if we die before that,
there is no database; a file that is there and empty or half is never ours.
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
from ninelives.stores.sqlite.files import anchor

_REMOTE = frozenset(
    (
        *(
            "nfs",
            "nfs4",
            "cifs",
            "smb3",
            "smbfs",
            "9p",
            "afs",
            "ceph",
            "lustre",
            "glusterfs",
            "beegfs",
            "gpfs",
        ),
        *("ocfs2", "fuse.sshfs", "fuse.glusterfs", "fuse.s3fs", "fuse.rclone", "fuse.ceph"),
    )
)
TOO_MANY_FILES = (errno.EMFILE, errno.ENFILE)
DEFAULT_DIRECTORY = ".ninelives"
_OCTAL = re.compile(rb"\\([0-7]{3})")
_HEADER = b"SQLite format 3\x00"
_APPLICATION_AT = 68
_LONGEST = 500


class StorePaths(Struct, frozen=True):
    """The files of one store."""

    database: Path
    anchor: Path
    live: Path


def locate(path: str | Path) -> StorePaths:
    """Return the files for a database, with its directories made.

    Raises StoreUnsafe on a filesystem that other hosts can write to; OSError where we may not write.
    """
    if "\0" in str(path):
        raise UsageError(f"{str(path)!r} is no path", remedy="Leave the NUL out")
    # The anchor and the log stand beside the file itself, not beside a symbolic link to it.
    database = Path(os.path.realpath(path))
    if database.is_symlink():
        raise _not_ours(database, os.strerror(errno.ELOOP))
    place = StorePaths(
        database, database.with_name(database.name + "-anchor"), database.with_name(database.name + "-live")
    )
    if len(os.fsencode(database)) > _LONGEST:
        raise StoreUnsafe(
            f"the path {database} is longer than SQLite takes ({_LONGEST} bytes)",
            remedy="Keep the store in a directory with a shorter path",
        )
    # Before anything is made.
    mounts = os.fsdecode(Path("/proc/self/mountinfo").read_bytes())
    refuse_remote(database, mounts.splitlines())
    make_directories(database.parent)
    if database.parent.name == DEFAULT_DIRECTORY and not database.exists():
        keep_out_of_git(database.parent)
    make_directories(place.live)
    return place


def keep_out_of_git(directory: Path) -> None:
    """Let git pass over the directory that we make beside people's sources; a file that is there stays."""
    with suppress(OSError), (directory / ".gitignore").open("x") as file:
        file.write("*\n")


def make_directories(path: Path) -> None:
    """Make a directory and its parents, for us alone, and make that durable."""
    if path.is_dir():
        return
    make_directories(path.parent)
    with suppress(FileExistsError):
        path.mkdir(mode=0o700)
        path.chmod(0o700)  # whatever the umask is
    sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def refuse_remote(path: Path, mountinfo: Iterable[str]) -> None:
    """Refuse a filesystem on which locks and logs of SQLite do not hold.

    Raises StoreUnsafe.
    """
    best, kind = "", ""
    resolved = os.path.realpath(path)
    for line in mountinfo:
        left, _, right = line.partition(" - ")
        point = os.fsdecode(_OCTAL.sub(lambda found: bytes([int(found[1], 8)]), os.fsencode(left.split()[4])))
        inside = resolved == point or resolved.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            best, kind = point, right.split()[0]
    if kind in _REMOTE:
        raise StoreUnsafe(
            f"{path} is on {kind}, where SQLite's locks do not hold",
            remedy="Keep the store on a local disk; for several machines use PostgreSQL",
        )


def inspect(place: StorePaths, application_id: int) -> None:
    """Look at an existing database file before SQLite does.

    Raises StoreUnsafe when it cannot be ours to write; Corrupt when it is empty or no database.
    """
    path = place.database
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
    if found.st_size == 0:
        raise Corrupt(
            f"{path} is empty: no store of ours ever is",
            remedy="Restore it from a backup; if it was never a store, remove it",
        )
    if len(header) < 100 or not header.startswith(_HEADER):
        raise Corrupt(
            f"{path} is not a SQLite database", remedy="Restore it from a backup, or name another file"
        )
    if int.from_bytes(header[_APPLICATION_AT : _APPLICATION_AT + 4]) != application_id:
        raise Corrupt(
            f"{path} is a SQLite database, but not a Nine Lives store (or its header is damaged)",
            remedy="Name another file, or restore it from a backup",
        )


def keep_private(place: StorePaths) -> None:
    """Take from others the right to read or write a database: a copy has the mode that its tool gave it.

    Raises StoreUnsafe when it is not ours to change.
    """
    mode = stat.S_IMODE(place.database.stat().st_mode)
    if mode & 0o077:
        try:
            place.database.chmod(0o600)
        except OSError:
            raise StoreUnsafe(
                f"{place.database} can be read by others (mode {mode:04o})",
                remedy=f"chmod 600 {place.database}",
            ) from None


def refuse_lost(place: StorePaths) -> None:
    """Refuse to make a new database where one has been.

    Raises Corrupt when the anchor counts commits of a database that is gone.
    """
    try:
        _, commits, _ = anchor.read(place.anchor)
    except FileNotFoundError:
        return
    if commits > 0:
        raise Corrupt(
            f"{place.database} is gone, and its anchor counts {commits} commits",
            remedy=f"Restore the database; to begin a new one, remove {place.anchor}",
        )


def fill_log(place: StorePaths, size: int) -> None:
    """Give the log a size: writing over what is there needs one sync less than growing a file.

    The caller holds SQLite's write lock, so that nobody writes there meanwhile. The zeros are synced with
    the next commit. If we die here: a shorter log, filled up next time; SQLite takes zeros for the end of
    the log. On a full disk it stays as it is.
    """
    try:
        fd = os.open(f"{place.database}-wal", os.O_WRONLY | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in TOO_MANY_FILES:
            return  # it only costs a sync
        raise
    try:
        missing = size - os.fstat(fd).st_size
        if missing > 0:
            with suppress(OSError):
                os.pwrite(fd, bytes(missing), size - missing)
    finally:
        os.close(fd)


def not_possible(path: Path, error: OSError) -> StoreUnsafe | StoreUnavailable:
    """Return the error for a place where the files cannot be opened."""
    if error.errno in TOO_MANY_FILES:
        return too_many_files(path, error)
    return StoreUnsafe(
        f"cannot keep a store at {path}: {error.strerror} ({error.filename or path})",
        remedy="The directory of the database must be on a local disk and writable for this user",
    )


def too_many_files(path: Path, error: OSError) -> StoreUnavailable:
    """Return the error for a process, or a machine, that may open no more files."""
    whose = "this process" if error.errno == errno.EMFILE else "this machine"
    return StoreUnavailable(
        f"cannot open {path}: {whose} has too many open files",
        remedy="Nothing was written. Raise the limit (ulimit -n, LimitNOFILE=), or close what is not needed",
    )


def _read_only(path: Path, error: OSError) -> StoreUnsafe:
    return StoreUnsafe(f"{path} is read-only: {error.strerror}", remedy="Give this user write access to it")


def _not_ours(path: Path, why: str) -> StoreUnavailable:
    return StoreUnavailable(f"cannot open {path}: {why}", remedy="Name a file on a local disk")
