"""What all commands share: options, exit codes, opening a store, and command lines to paste."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from contextlib import closing
from typing import Annotated, Any

import typer

from ninelives.core.errors import UsageError
from ninelives.stores import url as urls
from ninelives.stores.open import DEFAULT_URL, open_store
from ninelives.stores.presence import is_there

EXIT_FAILED, EXIT_USAGE, EXIT_PERSON, EXIT_STORE = 1, 2, 3, 4
EXIT_PIPE = 141  # what a shell reports for SIGPIPE: the command was done, its output was not read

Url = Annotated[str, typer.Option("--store", envvar="NINELIVES_STORE", help="The store's URL.")]
Target = Annotated[
    str,
    typer.Argument(
        metavar="FILE_OR_MODULE:AGENT", help="The file or module that declares the agent, and its name."
    ),
]
Words = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[JSON]...", help="Its arguments, as JSON or plain text; after -- if one starts with -."
    ),
]
Named = Annotated[list[str] | None, typer.Option("--arg", metavar="NAME=JSON", help="An argument by name.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")]


def existing(url: str) -> str:
    """Return the URL if its store exists: a command that only reads must not create a store.

    Raises UsageError; StoreError when a server cannot be reached.
    """
    if not is_there(url):
        where = urls.path_of(url) or urls.shown(url)
        raise UsageError(f"there is no store at {where}", remedy="Name one with --store or NINELIVES_STORE")
    return url


def opened(url: str) -> closing[Any]:
    """Open a store that exists, for a `with` block. Raises UsageError, StoreError."""
    return closing(open_store(existing(url)))


def command(words: Sequence[str], url: str, *rest: str) -> str:
    """Return a `ninelives` command line to paste, for the same store; `rest` comes after the options.

    A URL with a password is never printed: the command line reads it from the environment instead.
    """
    parts = [shlex.join(["ninelives", *words])]
    if url != (os.environ.get("NINELIVES_STORE") or DEFAULT_URL):
        parts.append('--store "$NINELIVES_STORE"' if urls.has_secret(url) else f"--store {shlex.quote(url)}")
    if rest:
        parts.append(shlex.join(rest))
    return " ".join(parts)
