"""What all commands share: options, exit codes, opening a store, and command lines to paste."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from ninelives.core.durations import duration_ms
from ninelives.core.errors import StoreError, UsageError
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

PolicyFile = Annotated[
    Path | None,
    typer.Option("--policy", envvar="NINELIVES_POLICY", metavar="FILE", help="The policy that judges calls."),
]


def policy_path(policy: Path | None) -> str:
    """Return the absolute path of a policy file that can be read; empty without one. Raises UsageError."""
    if policy is None:
        return ""
    try:
        policy.read_bytes()
    except OSError as error:
        raise UsageError(
            f"the policy {str(policy)!r} cannot be read: {error.strerror}",
            remedy="Nothing was started. Give the path of a policy file",
        ) from error
    return str(policy.resolve())


def ungoverned(store: Any) -> str:
    """Return what to say of a process without a policy on a store that has been governed; else empty."""
    from ninelives.governance.policy.kept import kept

    last = max(kept(store), key=lambda one: one[1].first_ms, default=None)
    if last is None:
        return ""
    return (
        f"no policy judges what this process does, but policy {last[1].name!r} has governed this store. "
        "To be governed, give --policy FILE or set NINELIVES_POLICY"
    )


def existing(url: str) -> str:
    """Return the URL if its store exists: a command that only reads must not create a store.

    Raises UsageError; StoreError when a server cannot be reached.
    """
    if not is_there(url):
        where = urls.path_of(url) or urls.shown(url)
        raise UsageError(f"there is no store at {where}", remedy="Name one with --store or NINELIVES_STORE")
    return url


def to_be_created(url: str) -> str:
    """Return where a store is about to be created, for people; empty if it exists, or that is unknown.

    A command that creates a store says so: a mistyped URL makes a new and empty one.
    """
    with suppress(StoreError):
        if not is_there(url):
            path = urls.path_of(url)
            return os.path.realpath(path) if path is not None else urls.shown(url)
    return ""


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


def age_ms(text: str) -> int:
    """Return an age such as 12h in milliseconds.

    Raises UsageError.
    """
    found = duration_ms(text)
    if found is None:
        raise UsageError(f"{text!r} is not an age", remedy="Write it as 90s, 15m, 12h or 30d")
    return found


def interval_ms(name: str, text: str) -> int:
    """Return the interval that an option gives, in milliseconds: work at an interval of 0 would never pause.

    Raises UsageError.
    """
    found = duration_ms(text, least_unit="ms")
    if found is None:
        raise UsageError(f"{name} {text!r} is not a time", remedy="Write it as 500ms, 90s, 15m, 12h or 30d")
    if not found:
        raise UsageError(f"{name} {text}", remedy="Give a time above 0, such as 24h or 500ms")
    return found
