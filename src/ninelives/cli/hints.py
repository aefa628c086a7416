"""Command lines that we print for people to paste: for the same store, without its password."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence

from ninelives.stores import url as urls
from ninelives.stores.open import DEFAULT_URL


def command(words: Sequence[str], url: str, *rest: str) -> str:
    """Return a `ninelives` command line for the store; `rest` comes after the options.

    A URL with a password is never printed: the command line reads it from the environment instead.
    """
    parts = [shlex.join(["ninelives", *words])]
    if url != (os.environ.get("NINELIVES_STORE") or DEFAULT_URL):
        parts.append('--store "$NINELIVES_STORE"' if urls.has_secret(url) else f"--store {shlex.quote(url)}")
    if rest:
        parts.append(shlex.join(rest))
    return " ".join(parts)
