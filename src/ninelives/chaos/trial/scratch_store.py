"""Scratch stores: one for each trial, so that no trial finds the keys of another.

SQLite files lie in the trial's own directory and go with it. On a server each trial has a schema or prefix of
its own, named chaos_…: they are left there, so name a server that can be thrown away.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

from ninelives.core.errors import UsageError
from ninelives.stores.url import is_server, shown, with_part

SQLITE = "sqlite:"

Url = Callable[[int, Path], str]
"""Gives the store of a trial, by its number and its directory."""


def urls(store: str) -> Url:
    """Return what names a store for each trial. Raises UsageError."""
    if store == SQLITE:
        return lambda _, home: f"sqlite:///{quote(os.fsencode(home / 'runs.db'))}"
    if not is_server(store):
        raise UsageError(
            f"--store {shown(store)!r}: chaos makes scratch stores, and does not know how to make one there",
            remedy=f"Leave it out for {SQLITE}, or name a server: postgresql://HOST/DATABASE, redis://HOST/0",
        )
    token = secrets.token_hex(4)
    return lambda number, _: with_part(store, f"chaos_{token}_{number}")
