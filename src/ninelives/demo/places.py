"""Where the demo's stages keep their runs: files of their own, or deployments of their own on a server."""

from __future__ import annotations

import secrets
from urllib.parse import parse_qsl, urlencode, urlsplit

from ninelives.core.errors import UsageError

_SERVERS = {
    "postgresql": ("schema", "ninelives.backends.postgres"),
    "postgres": ("schema", "ninelives.backends.postgres"),
    "redis": ("prefix", "ninelives.backends.redis"),
    "rediss": ("prefix", "ninelives.backends.redis"),
    "valkey": ("prefix", "ninelives.backends.redis"),
    "valkeys": ("prefix", "ninelives.backends.redis"),
}


def backend_of(url: str) -> str:
    """Return the module that opens such a URL, so that loading it is not counted as recovery."""
    server = _SERVERS.get(url.partition(":")[0])
    return server[1] if server is not None else "ninelives.backends.sqlite.store"


def on_server(url: str) -> dict[str, str]:
    """Return the URLs of both stages on a server: nothing that is there already is touched.

    Raises UsageError for what names no server.
    """
    found = urlsplit(url)
    if found.scheme not in _SERVERS:
        raise UsageError(
            f"{found.scheme}: names no server; the demo has files of its own",
            remedy="Leave --store out, or use postgresql://HOST/DATABASE or redis://HOST",
        )
    name, mark = _SERVERS[found.scheme][0], secrets.token_hex(3)
    kept = [(key, value) for key, value in parse_qsl(found.query, keep_blank_values=True) if key != name]
    return {
        stage: found._replace(query=urlencode([*kept, (name, f"demo_{mark}_{stage}")])).geturl()
        for stage in ("calm", "crashed")
    }
