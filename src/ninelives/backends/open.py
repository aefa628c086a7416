"""Open a store by its URL."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import unquote

from ninelives.core.errors import UsageError

if TYPE_CHECKING:
    from ninelives.backends.memory import MemoryStore
    from ninelives.backends.sqlite import SqliteStore

DEFAULT_URL = "sqlite:///.ninelives/runs.db"


def open_store(url: str = DEFAULT_URL) -> SqliteStore | MemoryStore:
    """Open the store that a URL names: `sqlite:///relative.db`, `sqlite:////absolute.db`, `memory:`.

    Raises UsageError for any other URL; StoreUnsafe, StoreUnavailable, SchemaMismatch, Corrupt.
    """
    scheme, _, rest = url.partition(":")
    if url == "memory:":
        from ninelives.backends.clock import SystemClock
        from ninelives.backends.memory import MemoryStore

        return MemoryStore(SystemClock())
    if scheme == "sqlite" and rest.startswith("///") and len(rest) > 3:
        from ninelives.backends.sqlite import SqliteStore

        return SqliteStore(unquote(rest[3:]))
    raise UsageError(
        f"{url!r} names no store", remedy="Use sqlite:///PATH (sqlite:////PATH if it is absolute) or memory:"
    )
