"""The working tree of a trial: a copy of the user's tree, and the changes that the run made in it.

Files are compared by content, SQLite databases by their rows. Not copied and not compared are by-products of
tools (bytecode, caches, repositories, virtual environments) and files without content (sockets, pipes).
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing, contextmanager
from hashlib import blake2b
from pathlib import Path

from msgspec import Struct

from ninelives.core.errors import UsageError

MOST_FILES, MOST_BYTES = 5_000, 100 * 1024 * 1024
MOST_READ_BYTES = 1024 * 1024
"""Of larger files outside the tree only the size is compared."""
_LEFT_OUT = frozenset({"__pycache__", "node_modules", "site-packages", "ninelives-chaos"})
_SIGNS = ("pyvenv.cfg", "CACHEDIR.TAG")
"""Files that mark a virtual environment or a cache, whatever its directory is called."""
_ENDINGS = (".pyc", "-wal", "-shm", "-journal")
_DATABASE = b"SQLite format 3\x00"

Manifest = dict[str, tuple[int, int]]
"""Size and modification time of each file, by its path in the tree."""


class Content(Struct, frozen=True):
    """A file's content; `lines` is only for display."""

    digest: str
    lines: int = 0


GONE = Content("")
"""A deleted file."""


class Tree:
    """The user's tree, and copies of it."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        with _copying(self.root):
            self._manifest = _manifest(self.root, is_checked=True)

    def copy(self, to: Path) -> None:
        """Make a fresh copy. Raises UsageError if the tree cannot be copied."""
        with _copying(self.root):
            to.mkdir(parents=True)
            for directory, _ in _directories(self.root):
                (to / directory.relative_to(self.root)).mkdir(exist_ok=True)
            for path in self._manifest:
                shutil.copy2(self.root / path, to / path, follow_symlinks=False)

    def changes(self, copy: Path) -> dict[str, Content]:
        """Return the files of a copy that were added, changed or deleted, with their content."""
        after = _manifest(copy, is_checked=False)
        changed = {
            path: _content(copy / path) for path, state in after.items() if self._manifest.get(path) != state
        }
        return changed | dict.fromkeys(self._manifest.keys() - after.keys(), GONE)


@contextmanager
def _copying(root: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UsageError(
            f"{root} cannot be copied, and every trial works on a copy of it: {error}",
            remedy="Fix that, or give another working directory with --tree",
        ) from error


def _manifest(root: Path, *, is_checked: bool) -> Manifest:
    found: Manifest = {}
    size = 0
    for path in _files(root):
        state = path.lstat()
        if not stat.S_ISREG(state.st_mode) and not stat.S_ISLNK(state.st_mode):
            continue
        found[path.relative_to(root).as_posix()] = (state.st_size, state.st_mtime_ns)
        size += state.st_size
        if is_checked and (len(found) > MOST_FILES or size > MOST_BYTES):
            raise UsageError(
                f"{root} holds more than {MOST_FILES} files or {MOST_BYTES >> 20} MB, and every trial works "
                "on a copy of it",
                remedy="Give a smaller working directory with --tree",
            )
    return found


def _files(root: Path) -> Iterator[Path]:
    for directory, files in _directories(root):
        for name in sorted(files):
            if not name.endswith(_ENDINGS):
                yield directory / name


def _directories(root: Path) -> Iterator[tuple[Path, list[str]]]:
    for directory, names, files in os.walk(root):
        names[:] = sorted(name for name in names if not _is_left_out(Path(directory, name)))
        yield Path(directory), files


def _is_left_out(directory: Path) -> bool:
    name = directory.name
    if name in _LEFT_OUT or name.startswith("."):
        return True
    return any((directory / sign).exists() for sign in _SIGNS)


def _content(path: Path) -> Content:
    if path.is_symlink():
        return Content(f"link to {path.readlink()}")
    try:
        data = path.read_bytes()
    except OSError as error:
        return Content(f"unreadable: {error.strerror}")
    if data.startswith(_DATABASE):
        data = _rows(path)
    return Content(blake2b(data, digest_size=8).hexdigest(), data.count(b"\n"))


def state_of(path: str) -> str:
    """Return the state of a file outside the tree, which may be in use by others; "" if there is none."""
    try:
        state = os.lstat(path)
        if stat.S_ISLNK(state.st_mode):
            return f"link to {os.readlink(path)}"  # noqa: PTH115
        if not stat.S_ISREG(state.st_mode):
            return "no file"
        if not 0 < state.st_size <= MOST_READ_BYTES or _is_locked_here(state.st_ino):
            return f"{state.st_size} bytes"
        return blake2b(Path(path).read_bytes(), digest_size=8).hexdigest()
    except FileNotFoundError:
        return GONE.digest
    except OSError as error:
        return f"unreadable: {error.strerror}"


def _is_locked_here(inode: int) -> bool:
    """Return whether this process may hold a POSIX lock on a file: to open and close it would release it."""
    try:
        locks = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
    except OSError:
        return True
    return any({"POSIX", str(os.getpid())} <= {*one} and one[-3].endswith(f":{inode}") for one in locks)


def _rows(path: Path) -> bytes:
    """Return the content of a database as SQL statements: equal rows give equal text."""
    try:
        with closing(sqlite3.connect(path)) as database:
            lines = [line for line in database.iterdump() if "ninelives_done" not in line]
    except sqlite3.Error as error:
        return f"unreadable: {error}".encode()
    return "\n".join(lines).encode()
