"""URLs of stores: what may be shown of them, whose they are, and how another part of a server is named.

A URL may hold a password, and ends up in terminals, logs and tickets when it is shown. What cannot be read is
the likeliest to be a password with a character that should have been encoded: when in doubt, it is a secret.
"""

from __future__ import annotations

import os
import re
from urllib.parse import parse_qsl, unquote, unquote_to_bytes, urlencode, urlsplit

_SERVERS = {
    "postgresql": ("postgres", "schema"),
    "postgres": ("postgres", "schema"),
    "redis": ("redis", "prefix"),
    "rediss": ("redis", "prefix"),
    "valkey": ("redis", "prefix"),
    "valkeys": ("redis", "prefix"),
}
"""By the scheme of a URL: its room here, and what names a part of a server there."""
_LOCAL = ("sqlite", "memory")

_AFTER_USER = re.compile(r"//[^/?@]*:[^@]*@")
_AS_PARAMETER = re.compile(r"[?&][^=&]*pass[^=&]*=", re.IGNORECASE)
_QUOTED = re.compile(r"[\"'].*", re.DOTALL)


def path_of(url: str) -> str | None:
    """Return the path of the database that a URL names, if it names a file; in UTF-8, whatever the locale."""
    rest = url.removeprefix("sqlite:///")
    if rest in (url, ""):
        return None
    return os.fsdecode(unquote_to_bytes(rest.encode("utf-8", "surrogateescape")))


def scheme_of(url: str) -> str:
    """Return the first part of a URL."""
    return url.partition(":")[0]


def has_secret(url: str) -> bool:
    """Tell whether a URL may hold a password."""
    if scheme_of(url) in _LOCAL:
        return False
    if "//" not in url:
        return "@" in url
    plain = unquote(url)  # direct_url= is a URL in a URL
    return any(found.search(text) for found in (_AFTER_USER, _AS_PARAMETER) for text in (url, plain))


def shown(url: str) -> str:
    """Return a URL as people may see it: one that may hold a password, only by its scheme."""
    return f"{scheme_of(url)}:…" if has_secret(url) else url


def complaint(error: Exception, url: str) -> str:
    """Return what a parser says of a URL, without what it quotes from one that may hold a password."""
    said = str(error).strip()
    return _QUOTED.sub("…", said) if has_secret(url) else said


def backend_of(url: str) -> str:
    """Name the module that opens such a URL."""
    room, _ = _SERVERS.get(scheme_of(url), ("sqlite", ""))
    return f"ninelives.stores.{room}"


def is_server(url: str) -> bool:
    """Tell whether a URL names a server, of which a store is a part."""
    return scheme_of(url) in _SERVERS


def part_in(url: str) -> str | None:
    """Return which part of its server a URL names (a schema, a prefix), if it does."""
    return dict(parse_qsl(urlsplit(url).query, keep_blank_values=True)).get(_SERVERS[scheme_of(url)][1])


def with_part(url: str, part: str) -> str:
    """Return the URL of another part of the same server."""
    found, (_, name) = urlsplit(url), _SERVERS[scheme_of(url)]
    rest = [pair for pair in parse_qsl(found.query, keep_blank_values=True) if pair[0] != name]
    made = found._replace(query=urlencode([*rest, (name, part)])).geturl()
    # urlsplit forgets the empty host that libpq wants to see: postgresql:///name
    return made if "//" in made else made.replace(":", "://", 1)
