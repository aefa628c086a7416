"""Open a store by its URL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ninelives.core.clock import Clock
from ninelives.core.errors import UsageError
from ninelives.stores import url as urls

if TYPE_CHECKING:
    from ninelives.stores.memory import MemoryStore
    from ninelives.stores.postgres import PostgresStore
    from ninelives.stores.redis import RedisStore
    from ninelives.stores.sqlite import SqliteStore

    AnyStore = SqliteStore | PostgresStore | RedisStore | MemoryStore

DEFAULT_URL = "sqlite:///.ninelives/runs.db"


def open_store(url: str = DEFAULT_URL, *, known: str = "", clock: Clock | None = None) -> AnyStore:
    """Open the store that a URL names: `sqlite:///relative.db`, `sqlite:////absolute.db`, `memory:`,
    `postgresql://user@host/database?schema=name`, `redis://host/0?prefix=name` (or `valkey:`, and with TLS
    `rediss:` or `valkeys:`).

    `known` is the `identity` that the store must have: a new one is then never created, and another one
    raises StoreBroken. `clock` is that of a store without a server; by default the machine's.
    Raises UsageError for any other URL; StoreUnsafe, StoreUnavailable, SchemaMismatch, Corrupt.
    """
    scheme, _, rest = url.partition(":")
    if url == "memory:":
        from ninelives.stores.clock import SystemClock
        from ninelives.stores.memory import MemoryStore

        return MemoryStore(clock or SystemClock())
    if (path := urls.path_of(url)) is not None:
        from ninelives.stores.sqlite import SqliteStore

        return SqliteStore(path, clock=clock)
    if scheme in ("postgresql", "postgres") and rest.startswith("//"):
        return _open_postgres(url, known)
    if scheme in ("redis", "rediss", "valkey", "valkeys") and rest.startswith("//"):
        return _open_redis(url, known)
    raise UsageError(
        f"{urls.shown(url)!r} names no store",
        remedy="Use sqlite:///PATH (sqlite:////PATH if it is absolute), postgresql://HOST/DATABASE,"
        " redis://HOST/0, memory:",
    )


def _open_postgres(url: str, known: str) -> PostgresStore:
    try:
        from ninelives.stores.postgres import PostgresStore
    except ModuleNotFoundError as error:
        raise UsageError(
            f"a PostgreSQL store needs psycopg: {error}", remedy="pip install 'ninelives[postgres]'"
        ) from error
    return PostgresStore(url, known=known)


def _open_redis(url: str, known: str) -> RedisStore:
    try:
        from ninelives.stores.redis import RedisStore
    except ModuleNotFoundError as error:
        raise UsageError(
            f"a Redis store needs redis-py: {error}", remedy="pip install 'ninelives[redis]'"
        ) from error
    return RedisStore(url, known=known)
