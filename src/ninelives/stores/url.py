"""URLs of stores: what may be shown of them, which store they name, how to name another part.

A URL may hold a password, and a URL that is shown ends up in terminals, logs and tickets. A URL that cannot
be parsed probably holds a password with a character that should have been encoded. So when in doubt, treat
the URL as secret.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping, Sequence
from urllib.parse import SplitResult, parse_qsl, unquote, unquote_to_bytes, urlencode, urlsplit

from ninelives.core.errors import UsageError

Options = list[tuple[str, str]]

_SERVERS = {
    "postgresql": ("postgres", "schema"),
    "postgres": ("postgres", "schema"),
    "redis": ("redis", "prefix"),
    "rediss": ("redis", "prefix"),
    "valkey": ("redis", "prefix"),
    "valkeys": ("redis", "prefix"),
}
"""By URL scheme: the store's package, and the option that names a part of the server."""
_LOCAL = ("sqlite", "memory")

_AFTER_USER = re.compile(r"//[^/?@]*:[^@]*@")
_AS_PARAMETER = re.compile(r"[?&][^=&]*pass[^=&]*=", re.IGNORECASE)
_QUOTED = re.compile(r"[\"'].*", re.DOTALL)


def path_of(url: str) -> str | None:
    """Return the path of the database if the URL names a file; always UTF-8, whatever the locale."""
    rest = url.removeprefix("sqlite:///")
    if rest in (url, ""):
        return None
    return os.fsdecode(unquote_to_bytes(rest.encode("utf-8", "surrogateescape")))


def scheme_of(url: str) -> str:
    """Return the scheme of a URL."""
    return url.partition(":")[0]


def is_local(url: str) -> bool:
    """Return whether a URL names a store on this machine, not a server's."""
    return scheme_of(url) in _LOCAL


def has_secret(url: str) -> bool:
    """Return whether a URL may hold a password."""
    if is_local(url):
        return False
    if "//" not in url:
        return "@" in url
    plain = unquote(url)  # direct_url= holds a URL inside the URL
    return any(found.search(text) for found in (_AFTER_USER, _AS_PARAMETER) for text in (url, plain))


def shown(url: str) -> str:
    """Return a URL that is safe to print: only its scheme if it may hold a password."""
    return f"{scheme_of(url)}:…" if has_secret(url) else url


def complaint(error: Exception, url: str) -> str:
    """Return a parser's message about a URL; quoted parts are cut if the URL may hold a password."""
    said = str(error).strip()
    return _QUOTED.sub("…", said) if has_secret(url) else said


def unreadable(error: Exception, url: str, remedy: str, name: str = "the store's URL") -> UsageError:
    """Return the error for a URL that a parser refuses."""
    return UsageError(f"{name} cannot be read: {complaint(error, url)}", remedy=remedy)


def split(url: str, own: Collection[str], remedy: str) -> tuple[SplitResult, dict[str, str], Options]:
    """Return the parts of a server's URL, our own options, and the driver's. Raises UsageError."""
    if "#" in url:
        raise UsageError("the store's URL has a # in it", remedy="In a password, write it as %23")
    try:
        found = urlsplit(url)
        given = parse_qsl(found.query, keep_blank_values=True, strict_parsing=bool(found.query))
    except ValueError as error:
        raise unreadable(error, url, remedy) from None
    ours = {name: value for name, value in given if name in own}
    return found, ours, [(name, value) for name, value in given if name not in own]


def accepted_risks(ours: Mapping[str, str], known: Sequence[str], noun: str) -> frozenset[str]:
    """Return what `unsafe=` accepts. Raises UsageError."""
    unsafe = frozenset(filter(None, ours.get("unsafe", "").split(",")))
    if not unsafe <= frozenset(known):
        raise UsageError(
            f"unsafe={ours['unsafe']}: unknown {noun}", remedy=f"Known {noun}s: {', '.join(known)}"
        )
    return unsafe


def backend_of(url: str) -> str:
    """Return the name of the module that opens such a URL."""
    room, _ = _SERVERS.get(scheme_of(url), ("sqlite", ""))
    return f"ninelives.stores.{room}"


def is_server(url: str) -> bool:
    """Return whether a URL names a server; a store is then one part of that server."""
    return scheme_of(url) in _SERVERS


def part_in(url: str) -> str | None:
    """Return the part of the server (schema or prefix) that a URL names, or None."""
    return dict(parse_qsl(urlsplit(url).query, keep_blank_values=True)).get(_SERVERS[scheme_of(url)][1])


def with_part(url: str, part: str) -> str:
    """Return the URL of another part of the same server."""
    found, (_, name) = urlsplit(url), _SERVERS[scheme_of(url)]
    rest = [pair for pair in parse_qsl(found.query, keep_blank_values=True) if pair[0] != name]
    made = found._replace(query=urlencode([*rest, (name, part)])).geturl()
    # urlsplit drops the empty host that libpq needs: postgresql:///name
    return made if "//" in made else made.replace(":", "://", 1)
