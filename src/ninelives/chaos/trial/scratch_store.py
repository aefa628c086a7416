"""Scratch stores: one for each trial, so that no trial finds the keys of another.

SQLite files are in the trial's directory and are deleted with it. On a server each trial uses a separate
schema or prefix with a new name. Chaos does not remove them: use a disposable server.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from urllib.parse import quote

from ninelives.core.errors import UsageError
from ninelives.stores.url import backend_of, is_server, part_in, shown, with_part

SQLITE = "sqlite:"
_GIVEN_CHARACTERS = 24
"""How much of a given name is kept before ours: servers limit the length of names."""

Url = Callable[[int, Path], str]
"""Returns the store URL of a trial, from its number and its directory."""


def urls(store: str, mark: str = "chaos") -> Url:
    """Return the function that names a scratch store for each trial. Raises UsageError.

    On a server, the names start with the one in the URL, for servers that permit only such names.
    """
    if store == SQLITE:
        return lambda _, home: f"sqlite:///{quote(os.fsencode(home / 'runs.db'))}"
    if not is_server(store):
        raise UsageError(
            f"--store {shown(store)!r} names no server: scratch stores cannot be created there",
            remedy="Omit it to use temporary files, or give a server: postgresql://HOST/DATABASE, redis://HOST/0",
        )
    parts = (part_in(store) or "")[:_GIVEN_CHARACTERS], mark, secrets.token_hex(4)
    prefix = "_".join(filter(None, parts))
    return lambda number, _: with_part(store, f"{prefix}_{number}")


def remove(url: str) -> None:
    """Remove a scratch store from its server. Raises StoreError if the server refuses."""
    import_module(f"{backend_of(url)}.server.schema").drop(url)
