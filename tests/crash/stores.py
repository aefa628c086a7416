"""The stores that the harness can break. A new store needs a line here."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from ninelives.backends.sqlite import SqliteStore
from ninelives.store import Maintenance, Store


class AnyStore(Store, Maintenance, Protocol):
    """Both protocols, which every store has."""


OPENERS: dict[str, Callable[[Path], AnyStore]] = {"sqlite": lambda home: SqliteStore(home / "runs.db")}
"""How to open each kind of store in a directory of its own."""


def open_store(kind: str, home: Path) -> AnyStore:
    """Open a store of a kind in a directory."""
    return OPENERS[kind](home)


@contextmanager
def scratch(*, in_memory: bool = True) -> Iterator[Path]:
    """Make a directory that goes again.

    A kill does not depend on the disk (the page cache survives it), so most campaigns run in memory,
    twenty times as fast; some run on the disk, where a commit's window is wide.
    """
    shm = Path("/dev/shm")
    home = tempfile.mkdtemp(prefix="ninelives-crash-", dir=shm if in_memory and shm.is_dir() else None)
    try:
        yield Path(home)
    finally:
        shutil.rmtree(home, ignore_errors=True)
