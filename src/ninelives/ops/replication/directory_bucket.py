"""A bucket in a directory: another disk, or a network filesystem that others back up.

An object is a file that gets its name when it is whole and synced. A hard link makes `create` atomic; a lock
file makes `replace` compare and write at one moment. A write that failed after its object was there is known
again by its content. Drafts of killed processes are removed when they are an hour old.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import secrets
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ninelives.core.errors import UsageError
from ninelives.ops.replication.bucket import BucketUnavailable, NameTaken, StoredObject
from ninelives.stores.durable_files import opened_draft, sync_directory

_LOCK = ".lock"
_DRAFT = ".draft-"
_OLD_SECONDS = 3_600.0


class DirectoryBucket:
    """Objects as files under one directory."""

    def __init__(self, path: str) -> None:
        self._root = Path(path)
        self.url = self.location = f"file://{self._root}"
        self._swept: dict[Path, float] = {}

    def read(self, name: str) -> StoredObject | None:
        """Return an object, or None."""
        with _translated(self.url):
            try:
                content = self._path(name).read_bytes()
            except (FileNotFoundError, NotADirectoryError):
                return None
        return StoredObject(content, hashlib.sha256(content).hexdigest())

    def read_start(self, name: str, size: int) -> bytes | None:
        """Return the first bytes of an object, or None."""
        with _translated(self.url):
            try:
                with self._path(name).open("rb") as file:
                    return file.read(size)
            except (FileNotFoundError, NotADirectoryError):
                return None

    def create(self, name: str, content: bytes) -> str:
        """Write a new object. Raises NameTaken if there is one."""
        path = self._path(name)
        with _translated(self.url), self._draft(path, content) as draft:
            try:
                os.link(draft, path)
            except FileExistsError as error:
                if path.read_bytes() != content:  # else our own, from before its directory could be synced
                    raise NameTaken(name) from error
            sync_directory(path.parent)
        return hashlib.sha256(content).hexdigest()

    def replace(self, name: str, content: bytes, version: str) -> str:
        """Replace an object that still has this version. Raises NameTaken."""
        path = self._path(name)
        with _translated(self.url), self._locked():
            known = self.read(name)
            if known is None or (known.version != version and known.content != content):
                raise NameTaken(name)
            self._put(path, content)
        return hashlib.sha256(content).hexdigest()

    def write(self, name: str, content: bytes) -> None:
        """Write an object, whatever is there."""
        with _translated(self.url):
            self._put(self._path(name), content)

    def names(self, prefix: str, after: str = "") -> list[str]:
        """Return the names of all objects under a prefix that come after a name, in order."""
        with _translated(self.url):
            paths = (Path(folder) / file for folder, _, files in os.walk(self._root) for file in files)
            found = sorted(
                str(path.relative_to(self._root)) for path in paths if not path.name.startswith(".")
            )
        return [name for name in found if name.startswith(prefix) and name > after]

    def remove(self, names: Iterable[str]) -> None:
        """Remove objects; those that do not exist are ignored."""
        with _translated(self.url):
            for name in names:
                self._path(name).unlink(missing_ok=True)

    def _path(self, name: str) -> Path:
        if ".." in name.split("/") or name.startswith("/"):
            raise UsageError(f"{name!r} is no name of an object")
        return self._root / name

    def _put(self, path: Path, content: bytes) -> None:
        with self._draft(path, content) as draft:
            draft.replace(path)
            sync_directory(path.parent)

    @contextmanager
    def _draft(self, path: Path, content: bytes) -> Iterator[Path]:
        _make(path.parent)
        draft = path.with_name(f"{_DRAFT}{secrets.token_hex(6)}")
        try:
            with opened_draft(draft) as file:
                file.write(content)
            # CRASH: a draft under a hidden name, which no list shows; it is removed when it is old.
            self._sweep(draft)
            yield draft
        finally:
            draft.unlink(missing_ok=True)

    def _sweep(self, own: Path) -> None:
        """Remove old drafts beside our own, now and then. Their age is by the clock of the filesystem."""
        now = time.monotonic()
        if now - self._swept.get(own.parent, -_OLD_SECONDS) < _OLD_SECONDS:
            return
        self._swept[own.parent] = now
        before = own.stat().st_mtime - _OLD_SECONDS
        for other in own.parent.glob(f"{_DRAFT}*"):
            with suppress(FileNotFoundError):
                if other.stat().st_mtime < before:
                    other.unlink()

    @contextmanager
    def _locked(self) -> Iterator[None]:
        _make(self._root)
        with (self._root / _LOCK).open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


@contextmanager
def _translated(url: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise BucketUnavailable(
            f"{url} cannot be used: {error}", remedy="Check that it is mounted, writable and not full"
        ) from error


def _make(directory: Path) -> None:
    """Make a directory that only its owner may enter: segments hold what the journals hold."""
    for one in reversed([one for one in (directory, *directory.parents) if not one.exists()]):
        one.mkdir(mode=0o700, exist_ok=True)
        sync_directory(one.parent)
