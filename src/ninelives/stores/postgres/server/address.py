"""The URL of a PostgreSQL store: where the server is, and our own options.

    postgresql://user:password@host:5432/database?schema=ninelives&sslmode=require

Our options: `schema` (default `ninelives`), `unsafe` (unsafe settings that you accept, separated by commas),
`pooled=true` (there is a transaction pooler in between, so no state may be kept on a connection) and
`direct_url` (the same database without the pooler, for locks and notifications, which need connection state;
it implies `pooled=true`). All other options are libpq's.
"""

from __future__ import annotations

import re
from urllib.parse import SplitResult, quote, urlencode

from msgspec import Struct
from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict

from ninelives.core.errors import UsageError
from ninelives.stores import url as urls

SCHEMES = ("postgresql", "postgres")
SETTINGS = ("fsync", "full_page_writes", "synchronous_commit")
_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,47}")
_LAST_PORT = 65535
_OURS = ("schema", "unsafe", "pooled", "direct_url")


class Address(Struct, frozen=True):
    """A parsed URL. `shown` has no secrets; `direct` bypasses any pooler, None if that is impossible."""

    libpq: str
    direct: str | None
    shown: str
    schema: str
    unsafe: frozenset[str]
    is_pooled: bool


def parse(url: str) -> Address:
    """Parse a URL. Raises UsageError that names what is wrong with it."""
    found, ours, rest = urls.split(url, _OURS, _REMEDY)
    if "@" in found.path:  # otherwise the start of a password would be read as a port, and be shown
        raise UsageError("the store's URL has an @ after a /", remedy="In a password, write / as %2F")
    schema = ours.get("schema", "ninelives")
    if found.scheme not in SCHEMES or not _SCHEMA.fullmatch(schema):
        raise UsageError(f"the schema {schema!r} cannot be used", remedy="Use small letters, digits and _")
    if schema.startswith("pg_"):
        raise UsageError(
            f"the schema {schema!r} cannot be used: names that begin with pg_ are PostgreSQL's own",
            remedy="Use another name",
        )
    unsafe = urls.accepted_risks(ours, SETTINGS, "setting")
    if ours.get("pooled", "false") not in ("true", "false"):
        raise UsageError(
            f"pooled must be true or false, not {ours['pooled']!r}", remedy="Use pooled=true or pooled=false"
        )
    libpq = found._replace(query=urlencode(rest, quote_via=quote)).geturl()
    if not found.netloc:  # urlsplit drops the empty host that libpq needs: postgresql:///name
        libpq = libpq.replace(f"{found.scheme}:", f"{found.scheme}://", 1) if "//" not in libpq else libpq
    _check(libpq, "the store's URL")
    direct = ours.get("direct_url")
    if direct is not None and direct.partition(":")[0] not in SCHEMES:
        raise UsageError(
            "direct_url is not a PostgreSQL URL",
            remedy="Use direct_url=postgresql%3A%2F%2FUSER%40HOST%2FDATABASE, the same database",
        )
    if direct is not None:
        _check(direct, "direct_url")
    is_pooled = ours.get("pooled") == "true" or direct is not None
    direct = direct if is_pooled else libpq
    return Address(libpq, direct, _shown(found, schema), schema, unsafe, is_pooled)


def _check(url: str, name: str) -> None:
    """Check what libpq would only report when it connects, as if the server were unreachable."""
    try:
        given = conninfo_to_dict(url)
    except ProgrammingError as error:
        raise urls.unreadable(error, url, _REMEDY, name) from None
    for port in str(given.get("port", "")).split(","):  # one for each host; empty: the default
        if port and not (port.isascii() and port.isdigit() and 0 < int(port) <= _LAST_PORT):
            raise UsageError(f"{name} has an invalid port {port!r}", remedy="Use a number up to 65535")


def _shown(found: SplitResult, schema: str) -> str:
    host = found.netloc.rpartition("@")[2]
    user = f"{found.username}@" if found.username else ""
    return f"postgresql://{user}{host}{found.path}?schema={schema}"


_REMEDY = (
    "Use postgresql://USER@HOST/DATABASE?schema=NAME; in a password, write all but letters and digits as %XX"
)
