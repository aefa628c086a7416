"""What all commands share: options, exit codes, and how a store is named."""

from __future__ import annotations

from typing import Annotated

import typer

from ninelives.core.errors import UsageError
from ninelives.stores import url as urls
from ninelives.stores.presence import is_there

EXIT_FAILED, EXIT_USAGE, EXIT_PERSON, EXIT_STORE = 1, 2, 3, 4
EXIT_PIPE = 141  # as the shell reports a SIGPIPE: it was done, and nobody read it

Url = Annotated[str, typer.Option("--store", envvar="NINELIVES_STORE", help="The store's URL.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")]


def existing(url: str) -> str:
    """Return the URL if its store is there: looking at one must not make one.

    Raises UsageError; StoreError where a server cannot be asked.
    """
    if not is_there(url):
        where = urls.path_of(url) or urls.shown(url)
        raise UsageError(f"there is no store at {where}", remedy="Name one with --store or NINELIVES_STORE")
    return url
