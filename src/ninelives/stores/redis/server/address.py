"""The URL of a Redis store: where the server is, and our own options.

    redis://user:password@host:6379/0?prefix=ninelives

`redis` and `valkey` mean the same; `rediss` and `valkeys` use TLS. Our options: `prefix` (the hash tag of all
keys, default `ninelives`), `unsafe` (risks that you accept, separated by commas) and `replicas` (how many
replicas must have synced an important write). All other options are redis-py's.
"""

from __future__ import annotations

import re
from functools import cache
from inspect import signature
from typing import Any
from urllib.parse import SplitResult, quote, urlencode

from msgspec import Struct
from redis.connection import AbstractConnection, Connection, SSLConnection, parse_url

from ninelives.core.errors import UsageError
from ninelives.stores import url as urls

SCHEMES = {"redis": "redis", "valkey": "redis", "rediss": "rediss", "valkeys": "rediss"}
RISKS = ("appendonly", "appendfsync", "eviction", "config")
"""Risks that may be accepted: no log, a log that is synced late, evicted keys, unreadable settings."""

_PREFIX = re.compile(r"[a-z0-9_.-]{1,48}")
_OURS = ("prefix", "unsafe", "replicas")
_REMEDY = (
    "Use redis://USER:PASSWORD@HOST:PORT/DATABASE?prefix=NAME;"
    " in a password, write all but letters and digits as %XX"
)


class Address(Struct, frozen=True):
    """A parsed URL. `shown` has no secrets; `options` are the driver's."""

    options: dict[str, Any]
    shown: str
    prefix: str
    unsafe: frozenset[str]
    replicas: int


def parse(url: str) -> Address:
    """Parse a URL. Raises UsageError that names what is wrong with it."""
    found, ours, rest = urls.split(url, _OURS, _REMEDY)
    prefix = ours.get("prefix", "ninelives")
    if found.scheme not in SCHEMES or not found.hostname:
        raise UsageError("the store's URL names no server", remedy=_REMEDY)
    if not _PREFIX.fullmatch(prefix):
        raise UsageError(
            f"the prefix {prefix!r} cannot be used", remedy="Use small letters, digits, `.`, `_` and `-`"
        )
    if found.path not in ("", "/") and not found.path[1:].isdecimal():
        named = "…" if urls.has_secret(url) else repr(found.path[1:])
        raise UsageError(f"{named} is not a database number", remedy=_REMEDY)
    unsafe = urls.accepted_risks(ours, RISKS, "risk")
    replicas = ours.get("replicas", "0")
    if not replicas.isdecimal() or len(replicas) > 3:
        raise UsageError(
            f"replicas={replicas} is not a number", remedy="Give the number of replicas that must sync"
        )
    unknown = [name for name, _ in rest if name not in _known_options()]
    if unknown:
        raise UsageError(
            f"the store's URL has an unknown option {unknown[0]}=",
            remedy=f"Our options are {', '.join(_OURS)}; others must be options of redis-py's connections",
        )
    driver = found._replace(scheme=SCHEMES[found.scheme], query=urlencode(rest, quote_via=quote)).geturl()
    try:
        options = parse_url(driver)  # type: ignore[no-untyped-call]
        shown = _shown(found, found.port or 6379, options.get("db", 0), prefix)
    except ValueError as error:
        raise urls.unreadable(error, url, _REMEDY) from None
    return Address(options, shown, prefix, unsafe, int(replicas))


@cache
def _known_options() -> frozenset[str]:
    kinds = (AbstractConnection, Connection, SSLConnection)
    return frozenset(name for kind in kinds for name in signature(kind).parameters)


def _shown(found: SplitResult, port: int, database: int, prefix: str) -> str:
    user = f"{found.username}@" if found.username else ""
    host = f"[{found.hostname}]" if ":" in (found.hostname or "") else found.hostname
    return f"{found.scheme}://{user}{host}:{port}/{database}?prefix={prefix}"
