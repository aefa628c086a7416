"""The stores of the demo's stages on a server: one new schema or prefix per stage.

They are removed at the end. If the demo is killed they stay, under names that contain "demo".
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from importlib import import_module

from ninelives.core.errors import UsageError
from ninelives.stores import url as urls

_GIVEN_CHARACTERS = 24
"""How much of a given name is kept before ours: servers limit the length of names."""


def on_server(url: str) -> dict[str, str]:
    """Return the store URLs of both stages on a server. Existing data is not touched.

    The names start with the one in the URL, for servers that permit only such names.
    Raises UsageError for a URL that names no server.
    """
    if not urls.is_server(url):
        raise UsageError(
            f"{urls.scheme_of(url)}: names no server; without --store the demo uses temporary files",
            remedy="Omit --store, or use postgresql://HOST/DATABASE or redis://HOST",
        )
    given = (urls.part_in(url) or "")[:_GIVEN_CHARACTERS]
    mark = "_".join(filter(None, (given, "demo", secrets.token_hex(3))))
    return {stage: urls.with_part(url, f"{mark}_{stage}") for stage in ("calm", "crashed")}


def remove(stages: Mapping[str, str]) -> None:
    """Remove the stages' stores from the server. Raises StoreError if the server refuses."""
    for url in stages.values():
        import_module(f"{urls.backend_of(url)}.server.schema").drop(url)
