"""Scratch stores: one for each trial, so that no trial finds the keys of another.

SQLite files lie in the trial's own directory and go with it. On a server each trial has a schema or prefix of
its own, named chaos_…: they are left there, so name a server that can be thrown away.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from pathlib import Path
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from ninelives.core.errors import UsageError

SQLITE = "sqlite:"
_BACKENDS = {
    "sqlite": ("sqlite", ""),
    "postgresql": ("postgres", "schema"),
    "postgres": ("postgres", "schema"),
    "redis": ("redis", "prefix"),
    "rediss": ("redis", "prefix"),
    "valkey": ("redis", "prefix"),
    "valkeys": ("redis", "prefix"),
}
"""By the scheme of a URL: its room in `backends`, and what names a part of a server there."""

Url = Callable[[int, Path], str]
"""Gives the store of a trial, by its number and its directory."""


def urls(store: str) -> Url:
    """Return what names a store for each trial. Raises UsageError."""
    if store == SQLITE:
        return lambda _, home: f"sqlite:///{quote(str(home / 'runs.db'))}"
    found = urlsplit(store)
    _, name = _BACKENDS.get(found.scheme, ("", ""))
    if not name:
        raise UsageError(
            f"--store {store!r}: chaos makes scratch stores, and does not know how to make one there",
            remedy=f"Leave it out for {SQLITE}, or name a server: postgresql://HOST/DATABASE, redis://HOST/0",
        )
    rest = [(key, value) for key, value in parse_qsl(found.query) if key != name]
    token = secrets.token_hex(4)

    def url(number: int, _: Path) -> str:
        query = urlencode([*rest, (name, f"chaos_{token}_{number}")])
        made = found._replace(query=query).geturl()
        # urlsplit forgets the empty host that libpq wants to see: postgresql:///name
        return made if "//" in made else made.replace(":", "://", 1)

    return url


def backend(store: str) -> str:
    """Name the module that speaks to a store: loaded once, not in every life."""
    return f"ninelives.backends.{_BACKENDS[urlsplit(store).scheme][0]}"
