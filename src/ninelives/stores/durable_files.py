"""Files that are there whole and durable, or not at all; only their owner may read them (mode 0600).

If we die here: a draft is left, under a hidden name beside the file.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

_NAME_CHARACTERS = 100


@contextmanager
def new_file(path: Path) -> Iterator[BinaryIO]:
    """Yield a file to write, which gets its name at the end. Raises FileExistsError; OSError."""
    draft = path.with_name(f".{path.name[:_NAME_CHARACTERS]}.{secrets.token_hex(4)}.tmp")
    try:
        with opened_draft(draft) as file:
            yield file
        # CRASH: a draft under a hidden name is left. A link, unlike a rename, never replaces a file.
        os.link(draft, path)
        sync_directory(path.parent)
    finally:
        with suppress(OSError):
            draft.unlink()


@contextmanager
def opened_draft(draft: Path) -> Iterator[BinaryIO]:
    """Yield a new file to write; at the end its content is durable, its name is not. Raises OSError."""
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
