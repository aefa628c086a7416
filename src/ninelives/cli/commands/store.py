"""`ninelives store`: measure, verify, prune, back up and repair a store."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated
from urllib.parse import unquote

import msgspec
import typer

from ninelives.cli.options import AsJson, Url, opened
from ninelives.cli.output import emit, emit_table
from ninelives.core.errors import UsageError
from ninelives.core.step_ids import step_text
from ninelives.store import Progress
from ninelives.stores.open import DEFAULT_URL
from ninelives.views.escape import shown

EXIT_FAULTS = 1
_UNITS_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}

app = typer.Typer(help="Measure, verify, prune, back up and repair a store.", no_args_is_help=True)


@app.command()
def stats(store: Url = DEFAULT_URL, as_json: AsJson = False) -> None:
    """Show what is in the store and how large it is."""
    with opened(store) as kept:
        found = kept.stats()
    if as_json:
        typer.echo(msgspec.json.encode(found).decode())
        return
    per_record = f" ({found.record_bytes / found.records:,.0f} each)" if found.records else ""
    rows = [(f"runs, {state}", f"{count:,}") for state, count in found.runs.items() if count]
    rows += [
        ("records", f"{found.records:,}"),
        ("bytes in records", f"{found.record_bytes:,}{per_record}"),
        ("blobs", f"{found.blobs:,} ({found.blob_bytes:,} bytes)"),
        ("business keys", f"{found.keys:,}"),
        ("open inbox items", f"{found.open_items:,}"),
        ("live sessions", f"{found.sessions:,}"),
        ("bytes on disk", f"{found.disk_bytes:,}"),
    ]
    emit(shown(kept.url))
    emit_table(("what", "how much"), rows)


@app.command()
def verify(store: Url = DEFAULT_URL, as_json: AsJson = False) -> None:
    """Read and check everything: structure, hash chains, blobs, keys. Exit 1 if there are faults."""
    with opened(store) as kept, _bar("verifying", as_json=as_json) as progress:
        faults = kept.verify(progress)
    if as_json:
        typer.echo(msgspec.json.encode(faults).decode())
    else:
        for fault in faults:
            typer.echo(shown(f"{fault.run or 'store'}: {fault.what}"))
        typer.echo(f"{len(faults)} faults" if faults else "no faults")
    if faults:
        raise typer.Exit(EXIT_FAULTS)


@app.command()
def prune(
    ended: Annotated[
        str, typer.Option(help="Remove journals of runs that ended longer ago than this age.")
    ] = "30d",
    forget: Annotated[
        str,
        typer.Option(help="Also remove runs that ended longer ago than this age; default: never."),
    ] = "",
    store: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Remove what is no longer needed. Ages are 90s, 15m, 12h, 30d."""
    with opened(store) as kept:
        now_ms = kept.now_ms()
        pruned = kept.prune(
            ended_before_ms=now_ms - age_ms(ended),
            forget_before_ms=now_ms - age_ms(forget) if forget else 0,
        )
    if as_json:
        typer.echo(msgspec.json.encode(pruned).decode())
    else:
        typer.echo(
            f"removed {pruned.journals} journals ({pruned.records} records), {pruned.blobs} blobs; "
            f"{pruned.keys} keys became tombstones; {pruned.runs} runs forgotten"
        )


@app.command()
def migrate(store: Url = DEFAULT_URL) -> None:
    """Upgrade the schema to this version."""
    with opened(store) as kept:
        before, after = kept.migrate()
    typer.echo(f"schema version {after}" + (f", was {before}" if before != after else ", nothing to do"))


@app.command()
def backup(
    target: Annotated[Path, typer.Argument(help="The file to write; an earlier backup is replaced.")],
    store: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Copy a SQLite store to a file while it is in use, and verify the copy."""
    with opened(store) as kept:
        if not hasattr(kept, "backup"):
            raise UsageError(
                f"{shown(kept.url)} is on a server",
                remedy="Use the server's tools: pg_dump, or Redis' RDB files",
            )
        with _bar("copying", as_json=as_json) as progress:
            copy = kept.backup(target, progress)
    if as_json:
        typer.echo(msgspec.json.encode(copy).decode())
    else:
        typer.echo(shown(f"{copy.path}: {copy.runs:,} runs, {copy.bytes:,} bytes, verified"))


@app.command()
def restore(
    source: Annotated[Path, typer.Argument(help="The backup, or any copy of a store's database.")],
    store: Url = DEFAULT_URL,
    replace: Annotated[
        bool,
        typer.Option("--replace", help="Replace an existing store; it is kept under another name."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Restore a SQLite store from a backup; unfinished runs are paused, open actions go to the inbox.

    What a run did after the backup is not recorded: check each run before you resume it.
    """
    from ninelives.stores.clock import SystemClock
    from ninelives.stores.sqlite.files import backups

    path = store.removeprefix("sqlite:///")
    if path == store:
        raise UsageError(
            f"{shown(store)} is not a SQLite store", remedy="Restore a server's data with the server's tools"
        )
    with _bar("copying", as_json=as_json) as progress:
        done = backups.restore(source, unquote(path), SystemClock(), replaces=replace, progress=progress)
    if as_json:
        typer.echo(msgspec.json.encode(done).decode())
        return
    for run in done.paused:
        typer.echo(shown(f"paused {run}"))
    for run, step in done.doubts:
        typer.echo(shown(f"in doubt: {step_text(step)} of {run}; see ninelives inbox"))
    if done.replaced is not None:
        typer.echo(shown(f"the replaced store is kept as {done.replaced}"))
    typer.echo(
        shown(
            f"{done.path}: {done.runs:,} runs restored, {len(done.paused):,} unfinished ones paused, "
            f"{len(done.doubts):,} actions in doubt; continue with: ninelives resume RUN"
        )
    )


@contextmanager
def _bar(what: str, *, as_json: bool) -> Iterator[Progress]:
    """Yield a function that updates a progress bar, if stderr is a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
    from rich.progress import Progress as Bar

    console = Console(stderr=True)
    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn())
    with Bar(*columns, console=console, disable=as_json or not console.is_terminal) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


@app.command("accept-loss")
def accept(path: Annotated[Path, typer.Argument(help="The database file.")]) -> None:
    """Accept a database that lost its tail or its anchor. Every unfinished run is paused.

    Check each run before you resume it: it may have done things that are no longer recorded.
    """
    from ninelives.stores.clock import SystemClock
    from ninelives.stores.sqlite.maintenance import accept_loss

    if not path.exists():
        raise UsageError(f"there is no file {path}", remedy="Name the database file, e.g. .ninelives/runs.db")
    paused = accept_loss(path, SystemClock())
    for run in paused:
        typer.echo(shown(f"paused {run}"))
    typer.echo(f"{len(paused)} unfinished runs paused; the store can be opened again")


def age_ms(text: str) -> int:
    """Return an age such as 12h in milliseconds.

    Raises UsageError.
    """
    found = re.fullmatch(r"(\d{1,9})([smhd])", text)
    if found is None:
        raise UsageError(f"{text!r} is not an age", remedy="Write it as 90s, 15m, 12h or 30d")
    return int(found[1]) * _UNITS_MS[found[2]]
