"""The anchor: a small file beside the database that holds the number of its last commit.

SQLite silently drops a damaged tail of its log: acknowledged commits are then gone and nothing reports it. So
every commit increments a counter in the database, and after it, still under the writers' lock, the same
number is written here. A database that is behind its anchor has lost its tail: `Corrupt`. A second number
counts the commits that are in the database file itself, without its log; it detects an older file beside a
newer log, which SQLite would mix.

The anchor is written but not synced: after a power cut it can only be behind the database, which is harmless.
If we die between commit and anchor, it is one behind, which is harmless too. If a database and its anchor are
both restored from one old backup, that cannot be detected.

Nothing here depends on which process copied the log into the database, or when: stock tools do it too. A
database without an anchor is a copy that a tool made: it is accepted as it is and gets an anchor.
"""

from __future__ import annotations

import os
from pathlib import Path
from struct import Struct as Layout
from zlib import crc32

from ninelives.core.errors import Corrupt

_LAYOUT = Layout("<8s16sQI")
# Two marks: a half that was written at the other's position fails its check.
_COMMITTED, _COPIED = b"9lives-a", b"9lives-c"
_SIZE = _LAYOUT.size


class Anchor:
    """An open anchor file: the last commit, and the last one that is in the database file itself."""

    def __init__(self, path: Path, store_id: bytes) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        self._store_id = store_id

    def write(self, commits: int) -> None:
        """Write the number of the last commit."""
        # One write of one image, and no sync: a reader under the
        # writers' lock sees it whole, and a step pays nothing.
        os.pwrite(self._fd, _image(_COMMITTED, self._store_id, commits), 0)

    def write_copied(self, commits: int) -> None:
        """Write the number of the last commit that was copied from the log into the database."""
        os.pwrite(self._fd, _image(_COPIED, self._store_id, commits), _SIZE)

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)


def create(path: Path, store_id: bytes, commits: int = 0, copied: int = 0) -> None:
    """Create an anchor, synced and then renamed: it exists whole or not at all."""
    draft = path.with_name(path.name + "-new")
    fd = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        os.write(fd, _image(_COMMITTED, store_id, commits) + _image(_COPIED, store_id, copied))
        # Synced once, at creation: an empty anchor after a power cut would be read as a damaged one.
        os.fsync(fd)
    finally:
        os.close(fd)
    draft.rename(path)


def read(path: Path) -> tuple[bytes, int, int]:
    """Return the store's id, its last commit, and the last one that is in the database file itself.

    Raises FileNotFoundError; Corrupt when the file is damaged.
    """
    image = path.read_bytes()
    if len(image) == 2 * _SIZE:
        magic, store_id, commits, check = _LAYOUT.unpack_from(image)
        other, same_id, copied, second = _LAYOUT.unpack_from(image, _SIZE)
        sound = check == _check(image[:_SIZE]) and second == _check(image[_SIZE:])
        if sound and (magic, other) == (_COMMITTED, _COPIED) and store_id == same_id:
            return store_id, commits, copied
    raise Corrupt(f"the anchor {path} is damaged", remedy=remedy(path))


def compare(path: Path, store_id: bytes, commits: int, in_file: int | None) -> None:
    """Check the database against its anchor: its id, its last commit, and the last one in the file.

    Raises FileNotFoundError; Corrupt when the anchor is damaged, another store's, or ahead of the database:
    then the log has lost its tail, or an older database was put beside it.
    """
    anchored_id, anchored, copied = read(path)
    # The id first: numbers of another store's anchor mean nothing here.
    if anchored_id != store_id:
        raise Corrupt(f"the anchor {path} belongs to another database", remedy=remedy(path))
    if anchored > commits:
        raise Corrupt(
            f"the database lost its tail: it ends at commit {commits}, and {anchored} were acknowledged",
            remedy=remedy(path),
        )
    # SQLite would apply a newer log to older pages, and no checksum of its own would notice.
    if in_file is not None and copied > in_file:
        raise Corrupt(
            f"the database is an older one than its log: it holds {in_file} commits, and {copied} were in it",
            remedy=remedy(path),
        )


def remedy(path: Path) -> str:
    """Return what to do about an anchor that does not agree."""
    database = str(path).removesuffix("-anchor")
    return (
        "Restore database, -wal and -anchor together from where they were copied or moved. "
        "To continue with what is left, with unfinished runs paused until a person has checked them: "
        f"ninelives store accept-loss {database}"
    )


def _image(magic: bytes, store_id: bytes, commits: int) -> bytes:
    image = _LAYOUT.pack(magic, store_id, commits, 0)
    return image[:-4] + _check(image).to_bytes(4, "little")


def _check(image: bytes) -> int:
    return crc32(image[:-4])
