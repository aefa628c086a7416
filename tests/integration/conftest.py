"""What the tests of the SQLite store stand on: a path, and stores that are closed afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from ninelives.stores.sqlite import SqliteStore
from tests.integration.children import Child

Opener = Callable[..., SqliteStore]
Starter = Callable[..., Child]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return where the database is to be."""
    return tmp_path / "runs.db"


@pytest.fixture
def opened(path: Path) -> Iterator[Opener]:
    """Yield what opens the store, as often as a test likes."""
    with ExitStack() as stack:

        def open_one(at: Path | None = None, **options: object) -> SqliteStore:
            store = SqliteStore(at or path, **options)  # type: ignore[arg-type]
            stack.callback(store.close)
            return store

        yield open_one


@pytest.fixture
def started(path: Path) -> Iterator[Starter]:
    """Yield what starts a process in a role of `roles`; all are killed in the end."""
    with ExitStack() as stack:

        def start(role: str, *words: object, at: Path | None = None, prefix: tuple[str, ...] = ()) -> Child:
            return stack.enter_context(Child(role, at or path, *words, prefix=prefix))

        yield start
