"""Where the demo's stages keep their runs: files of their own, or deployments of their own on a server.

What is made on a server is removed in the end. If we are killed, it is left there, under names that say whose
it is.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping

from ninelives.core.errors import UsageError
from ninelives.stores import url as urls

_GIVEN_CHARACTERS = 24
"""How much of a given name fits before ours: servers bound the length of names."""


def on_server(url: str) -> dict[str, str]:
    """Return the URLs of both stages on a server: nothing that is there already is touched.

    Their names begin with the one that the URL gives, for servers that let us use no others.
    Raises UsageError for what names no server.
    """
    if not urls.is_server(url):
        raise UsageError(
            f"{urls.scheme_of(url)}: names no server; the demo has files of its own",
            remedy="Leave --store out, or use postgresql://HOST/DATABASE or redis://HOST",
        )
    given = (urls.part_in(url) or "")[:_GIVEN_CHARACTERS]
    mark = "_".join(filter(None, (given, "demo", secrets.token_hex(3))))
    return {stage: urls.with_part(url, f"{mark}_{stage}") for stage in ("calm", "crashed")}


def remove(places: Mapping[str, str]) -> None:
    """Remove what was made on a server. Raises StoreError when the server does not let us."""
    for url in places.values():
        if urls.backend_of(url).endswith("postgres"):
            from ninelives.stores.postgres.server.schema import drop as remove
        else:
            from ninelives.stores.redis.server.drop import drop as remove
        remove(url)
