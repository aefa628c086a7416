"""The stores that the harness can break. A new store needs a line in `GROUNDS` and one in `CLASSES`.

All that a process has to know is its directory: a store that is not a file in it has its address in it.
"""

from __future__ import annotations

import importlib
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Protocol, cast

from ninelives.core.model.session import Cause, Evidence, Fate
from ninelives.store import Maintenance, Store
from ninelives.stores.open import open_store

_ADDRESS = "address"
_SEEN = Evidence(is_gone=True, signal=9, note="killed by the test, which has seen it end")
_BRISK_SECONDS = 0.02


class AnyStore(Store, Maintenance, Protocol):
    """Both protocols, which every store has."""


@contextmanager
def _postgresql() -> Iterator[str]:
    from tests.servers import postgres

    schema = f"crash_{secrets.token_hex(6)}"
    try:
        yield f"{postgres.shared_url()}?schema={schema}"
    finally:
        postgres.change(f"DROP SCHEMA IF EXISTS {schema} CASCADE")


@contextmanager
def _redis() -> Iterator[str]:
    from tests.servers import valkey

    prefix = f"crash-{secrets.token_hex(6)}"
    try:
        yield f"{valkey.shared_url()}?prefix={prefix}"
    finally:
        valkey.wipe(prefix)


GROUNDS: dict[str, Callable[[], AbstractContextManager[str]]] = {"postgresql": _postgresql, "redis": _redis}
"""How to get a fresh address on a server, which goes again."""
CLASSES = {
    "sqlite": "ninelives.stores.sqlite:SqliteStore",
    "postgresql": "ninelives.stores.postgres:PostgresStore",
    "redis": "ninelives.stores.redis:RedisStore",
}
"""What opens the addresses of a scheme."""
DURABLE = ("sqlite", *GROUNDS)
SERVED = tuple(GROUNDS)
BLIND = ("redis",)
"""Where a death is seen by its supervisor, or when its lease has run out."""
SEEING = tuple(kind for kind in DURABLE if kind not in BLIND)


def address(home: Path) -> str:
    """Return the URL of the store of a directory: one in it, unless it says that it is elsewhere."""
    elsewhere = home / _ADDRESS
    return elsewhere.read_text() if elsewhere.exists() else f"sqlite:///{home / 'runs.db'}"


def is_file(home: Path) -> bool:
    """Tell whether the store of a directory is a file."""
    return address(home).startswith("sqlite:")


def open_at(home: Path) -> AnyStore:
    """Open the store of a directory."""
    return cast("AnyStore", open_store(address(home)))


def kind_at(home: Path) -> type[object]:
    """Return the class of the store of a directory, whether it can be reached or not."""
    module, _, name = CLASSES[address(home).partition(":")[0]].partition(":")
    found: type[object] = getattr(importlib.import_module(module), name)
    return found


def open_brisk(home: Path) -> AnyStore:
    """Open it so that its waits are short, and leaving a runtime is quick."""
    store = open_at(home)
    real = store.wait_for_work
    vars(store)["wait_for_work"] = lambda seconds: real(min(seconds, _BRISK_SECONDS))
    return store


def place(home: Path, url: str) -> Path:
    """Let the store of a directory be at an address; returns the directory."""
    (home / _ADDRESS).write_text(url)
    return home


@contextmanager
def at(kind: str, home: Path) -> Iterator[Path]:
    """Let the store of a directory be of a kind."""
    if kind not in GROUNDS:
        yield home
        return
    with GROUNDS[kind]() as url:
        yield place(home, url)


@contextmanager
def scratch(kind: str = "sqlite", *, in_memory: bool = True) -> Iterator[Path]:
    """Make a directory with a store that goes again.

    A kill does not depend on the disk (the page cache survives it), so most campaigns run in memory,
    twenty times as fast; some run on the disk, where a commit's window is wide.
    """
    shm = Path("/dev/shm")
    home = tempfile.mkdtemp(prefix="ninelives-crash-", dir=shm if in_memory and shm.is_dir() else None)
    try:
        with at(kind, Path(home)) as made:
            yield made
    finally:
        shutil.rmtree(home, ignore_errors=True)


def bury(home: Path) -> None:
    """Say of the processes that are gone that they are, as their supervisor would who has seen them end.

    A file's own locks prove it; a server only knows that a connection is gone.
    """
    if is_file(home):
        return
    store = open_at(home)
    names = {one.id for one in store.list_sessions()} | {one.session for one in store.read_log(limit=1000)}
    found = [session for name in sorted(names) if (session := store.read_session(name)) is not None]
    gone = [one.id for one in found if one.fate is not Fate.GONE and not Path(f"/proc/{one.pid}").exists()]
    if gone:
        store.end_sessions(gone, Cause.DIED, evidence=dict.fromkeys(gone, _SEEN))
    store.close()
