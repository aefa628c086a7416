"""Command lines that we tell people, to be pasted into a shell: for the same store, without its password."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence

from ninelives.stores import url as urls
from ninelives.stores.open import DEFAULT_URL


def command(words: Sequence[str], url: str, *rest: str) -> str:
    """Return a command line of ours for the store; `rest` comes after the options.

    A URL with a password is not shown: the line takes it from the environment, where it should be kept.
    """
    said = [shlex.join(["ninelives", *words])]
    if url != (os.environ.get("NINELIVES_STORE") or DEFAULT_URL):
        said.append('--store "$NINELIVES_STORE"' if urls.has_secret(url) else f"--store {shlex.quote(url)}")
    if rest:
        said.append(shlex.join(rest))
    return " ".join(said)
