"""Scratch stores: one for each trial, so that no trial finds the keys of another.

SQLite files are in the trial's directory and are deleted with it. On a server each trial uses a separate
schema or prefix named chaos_…. These are not removed, so use a disposable server.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

from ninelives.core.errors import UsageError
from ninelives.stores.url import backend_of, is_server, shown, with_part

SQLITE = "sqlite:"

Url = Callable[[int, Path], str]
"""Returns the store URL of a trial, from its number and its directory."""


def urls(store: str) -> Url:
    """Return the function that names a scratch store for each trial. Raises UsageError."""
    if store == SQLITE:
        return lambda _, home: f"sqlite:///{quote(os.fsencode(home / 'runs.db'))}"
    if not is_server(store):
        raise UsageError(
            f"--store {shown(store)!r}: chaos cannot create scratch stores there",
            remedy=f"Omit it to use {SQLITE}, or give a server: postgresql://HOST/DATABASE, redis://HOST/0",
        )
    token = secrets.token_hex(4)
    return lambda number, _: with_part(store, f"chaos_{token}_{number}")


def remove(url: str) -> None:
    """Remove a scratch store from its server. Raises StoreError if the server refuses."""
    if backend_of(url).endswith("postgres"):
        from ninelives.stores.postgres.server.schema import drop
    else:
        from ninelives.stores.redis.server.drop import drop
    drop(url)
