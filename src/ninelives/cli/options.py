"""What all commands share: options, exit codes, and how a store is named."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated
from urllib.parse import unquote

import typer

from ninelives.core.errors import UsageError

EXIT_FAILED, EXIT_USAGE, EXIT_PERSON, EXIT_STORE = 1, 2, 3, 4
EXIT_PIPE = 141  # as the shell reports a SIGPIPE: it was done, and nobody read it

Url = Annotated[str, typer.Option("--store", envvar="NINELIVES_STORE", help="The store's URL.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")]


def existing(url: str) -> str:
    """Return the URL if its database is there: looking at a store must not make one.

    Raises UsageError.
    """
    rest = url.removeprefix("sqlite:///")
    path = unquote(rest)
    if rest != url and not Path(path).exists() and not Path(f"{path}-anchor").exists():
        raise UsageError(f"there is no store at {path}", remedy="Name one with --store or NINELIVES_STORE")
    return url
