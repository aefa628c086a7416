"""Open a store by its URL."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ninelives.core.clock import Clock
from ninelives.core.errors import UsageError
from ninelives.core.model.document import ENCRYPTION
from ninelives.stores import url as urls
from ninelives.stores.encrypted.keys import VARIABLES, Encrypt, ring_of

if TYPE_CHECKING:
    from ninelives.stores.memory import MemoryStore
    from ninelives.stores.postgres import PostgresStore
    from ninelives.stores.redis import RedisStore
    from ninelives.stores.sqlite import SqliteStore

    AnyStore = SqliteStore | PostgresStore | RedisStore | MemoryStore

DEFAULT_URL = "sqlite:///.ninelives/runs.db"


def open_store(
    url: str = DEFAULT_URL,
    *,
    known: str = "",
    clock: Clock | None = None,
    encrypt: Encrypt | bool | None = None,
) -> AnyStore:
    """Open the store that a URL names: `sqlite:///relative.db`, `sqlite:////absolute.db`, `memory:`,
    `postgresql://user@host/database?schema=name`, `redis://host/0?prefix=name` (or `valkey:`, and with TLS
    `rediss:` or `valkeys:`).

    `known` is the `identity` that the store must have: a new one is then never created, and another one
    raises StoreBroken. `clock` is that of a store without a server; by default the machine's. `encrypt`
    gives the keys of an encrypted store; by default they are in `$NINELIVES_KEYS` (`stores.encrypted`).
    Raises UsageError for any other URL; StoreUnsafe, StoreUnavailable, SchemaMismatch, Corrupt.
    """
    return encrypted(_opened(url, known, clock), encrypt)


def encrypted(store: AnyStore, encrypt: Encrypt | bool | None = None) -> AnyStore:
    """Return a store whose bodies are encrypted, if keys are given or it is; else the store itself.

    Raises UsageError for bad keys.
    """
    has_keys = any(os.environ.get(name, "").strip() for name in VARIABLES) and encrypt is not False
    if not has_keys and not encrypt and not store.read_documents(ENCRYPTION, limit=1):
        return store
    from ninelives.stores.encrypted.encrypted_store import with_encryption

    made: AnyStore = with_encryption(store, ring_of(encrypt))
    return made


def _opened(url: str, known: str, clock: Clock | None) -> AnyStore:
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
