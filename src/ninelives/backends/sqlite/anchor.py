"""The anchor: a small file beside the database that holds the number of its last commit.

SQLite drops a damaged tail of its log without a word: what was acknowledged is then gone and nothing
says so. So every commit counts up in the database, and after it, still under the writers' lock, the
same number is written here. A database that is behind its anchor has lost its tail: `Corrupt`.

The anchor is written but not synced: it can only be behind the database after a power cut, which is
harmless. If we die between commit and anchor, it is one behind, which is harmless too. A database
and an anchor that are both put back from one old backup cannot be told from the truth.
"""

from __future__ import annotations

import os
from pathlib import Path
from struct import Struct as Layout
from zlib import crc32

from ninelives.core.errors import Corrupt

_LAYOUT = Layout("<8s16sQ")
_CRC = Layout("<I")
_MAGIC = b"9lives-a"
_SIZE = _LAYOUT.size + _CRC.size


class Anchor:
    """An open anchor file."""

    def __init__(self, path: Path, store_id: bytes) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        self._store_id = store_id

    def write(self, commits: int) -> None:
        """Note the last commit."""
        os.pwrite(self._fd, _image(self._store_id, commits), 0)

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)


def create(path: Path, store_id: bytes, commits: int = 0) -> None:
    """Write a new anchor and sync it, so that a power cut cannot leave it empty."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        os.write(fd, _image(store_id, commits))
        os.fsync(fd)
    finally:
        os.close(fd)


def read(path: Path) -> tuple[bytes, int]:
    """Return the store's id and its last commit.

    Raises FileNotFoundError; Corrupt when the file is damaged.
    """
    image = path.read_bytes()
    if len(image) == _SIZE:
        magic, store_id, commits = _LAYOUT.unpack_from(image)
        if magic == _MAGIC and _CRC.unpack_from(image, _LAYOUT.size)[0] == crc32(image[: _LAYOUT.size]):
            return store_id, commits
    raise Corrupt(f"the anchor {path} is damaged", remedy=remedy(path))


def compare(path: Path, store_id: bytes, commits: int) -> None:
    """Check the database's id and commit number against the anchor.

    Raises Corrupt when the anchor is missing, damaged, another store's, or ahead of the database.
    """
    try:
        anchored_id, anchored = read(path)
    except FileNotFoundError:
        raise Corrupt(
            f"the anchor {path} is missing, so nobody can tell whether the database is whole",
            remedy=remedy(path),
        ) from None
    if anchored_id != store_id:
        raise Corrupt(f"the anchor {path} belongs to another database", remedy=remedy(path))
    if anchored > commits:
        raise Corrupt(
            f"the database lost its tail: it ends at commit {commits}, and {anchored} were acknowledged",
            remedy=remedy(path),
        )


def remedy(path: Path) -> str:
    """Say what to do about an anchor that does not agree."""
    database = str(path).removesuffix("-anchor")
    return (
        "Restore database, -wal and -anchor together from where they were copied or moved. "
        "To go on with what is left, unfinished runs paused for a person to look at: "
        f"ninelives store accept-loss {database}"
    )


def _image(store_id: bytes, commits: int) -> bytes:
    image = _LAYOUT.pack(_MAGIC, store_id, commits)
    return image + _CRC.pack(crc32(image))
