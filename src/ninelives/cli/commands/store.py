"""`ninelives store`: measure, verify, prune, back up, replicate and repair a store."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated
from urllib.parse import unquote

import msgspec
import typer

from ninelives.cli.options import EXIT_FAILED, AsJson, Url, age_ms, interval_ms, opened
from ninelives.cli.output import bar, emit, emit_paused, emit_table
from ninelives.core.errors import UsageError
from ninelives.core.step_ids import step_text
from ninelives.stores.open import DEFAULT_URL
from ninelives.views.counted import counted
from ninelives.views.escape import shown

app = typer.Typer(help="Measure, verify, prune, back up and repair a store.", no_args_is_help=True)


@app.command()
def stats(
    largest: Annotated[
        int, typer.Option("--largest", min=0, help="Also show so many of the runs with the most records.")
    ] = 0,
    store: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Show what is in the store, its size and how fast it grows."""
    from ninelives.cli.operate import retention as command
    from ninelives.ops import retention

    with opened(store) as kept:
        found, size = kept.stats(), retention.size_of(kept)
        large = retention.largest(kept, largest) if largest else []
    if as_json:
        more = {"bytes_per_day": size.per_day, **({"largest": large} if largest else {})}
        typer.echo(msgspec.json.encode(msgspec.to_builtins(found) | more).decode())
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
        ("size", command.size_text(size)),
    ]
    emit(shown(kept.url))
    emit_table(("what", "how much"), rows)
    if largest:
        command.show_largest(large)


@app.command()
def verify(store: Url = DEFAULT_URL, as_json: AsJson = False) -> None:
    """Read and check everything at once, without a pause.

    An audit that leaves no trace.
    Structure, hash chains, blobs, keys against journals, proved duplicates. For a store in use, `store audit`
    does the same in small parts. Exit 1 if there are faults.
    """
    with opened(store) as kept, bar("verifying", as_json=as_json) as progress:
        faults = kept.verify(progress)
    if as_json:
        typer.echo(msgspec.json.encode(faults).decode())
    else:
        for fault in faults:
            typer.echo(shown(f"{fault.run or 'store'}: {fault.what}"))
        typer.echo(counted(len(faults), "fault") if faults else "no faults")
    if faults:
        raise typer.Exit(EXIT_FAILED)


@app.command()
def audit(
    every: Annotated[
        str, typer.Option(help="Stay, and audit again at this interval: 24h. One process per store works.")
    ] = "",
    rate: Annotated[
        float, typer.Option(min=1, help="Rows per second; at most a quarter of the time is used.")
    ] = 1000,
    sample: Annotated[
        str, typer.Option(help="Read this share of the runs and blobs, others each time.")
    ] = "100%",
    store: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Read and check everything in small parts, beside workers.

    What `store verify` checks, gently.
    An audit that was killed goes on where it was. If another process audits the store, this one shows how far
    it is and reports its result. The result is kept, for `status` and metrics.
    Exit 0 sound, 1 faults, 4 store unusable.
    """
    from ninelives.cli.operate import audit as command

    command.audit(store, every, rate, sample, as_json=as_json)


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
    from ninelives.ops import retention

    with opened(store) as kept:
        now_ms = kept.now_ms()
        pruned = retention.prune(
            kept,
            ended_before_ms=now_ms - age_ms(ended),
            forget_before_ms=now_ms - age_ms(forget) if forget else 0,
        )
    if as_json:
        typer.echo(msgspec.json.encode(pruned).decode())
    else:
        typer.echo(
            f"removed {counted(pruned.journals, 'journal')} ({counted(pruned.records, 'record')}), "
            f"{counted(pruned.blobs, 'blob')}; {counted(pruned.keys, 'key')} kept as tombstones; "
            f"{counted(pruned.runs, 'run')} forgotten"
        )


@app.command()
def retain(
    keep: Annotated[str, typer.Option(help="Keep the journals of ended runs for this time.")] = "30d",
    agent: Annotated[
        list[str] | None, typer.Option("--agent", metavar="NAME=AGE", help="Another time for an agent.")
    ] = None,
    forget: Annotated[str, typer.Option(help="Forget runs that ended longer ago; default: never.")] = "",
    log: Annotated[str, typer.Option(help="Keep the recovery log and old sessions for this time.")] = "400d",
    every: Annotated[str, typer.Option(help="Do it again and again, after this time.")] = "",
    store: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Remove what is old, in small transactions. It may be killed at any moment, and run twice at once.

    Ages are 90s, 15m, 12h, 30d. Business keys stay known as tombstones.
    """
    from ninelives.cli.operate import retention as command
    from ninelives.ops.retention import Retention

    ages = {text: age_ms(text.rpartition("=")[2]) for text in agent or ()}
    wanted = Retention(
        keep_ms=age_ms(keep),
        agents=command.parse_agents(agent or [], ages),
        forget_ms=age_ms(forget) if forget else None,
        log_ms=age_ms(log),
    )
    seconds = interval_ms("--every", every) / 1000 if every else None
    command.retain(store, wanted, seconds, as_json=as_json)


@app.command()
def compact(store: Url = DEFAULT_URL, as_json: AsJson = False) -> None:
    """Give disk space back that was freed. A SQLite store must not be in use."""
    from ninelives.cli.operate import retention as command

    command.compact(store, as_json=as_json)


@app.command()
def migrate(store: Url = DEFAULT_URL) -> None:
    """Upgrade the schema to this version."""
    with opened(store) as kept:
        before, after = kept.migrate()
    typer.echo(f"schema version {after}" + (f", was {before}" if before != after else ", nothing to do"))


@app.command()
def backup(
    target: Annotated[
        str,
        typer.Argument(metavar="DEST", help="The file to write, s3://bucket/prefix or file:///directory."),
    ],
    store: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Copy a store while it is in use.

    SQLite to a SQLite file, a server's to a file of capsules.
    An earlier SQLite backup of the name is replaced. A bucket gets one more snapshot.
    """
    from ninelives.ops.replication.opening import is_bucket

    with opened(store) as kept:
        if is_bucket(target) or not hasattr(kept, "backup"):
            from ninelives.cli.operate import replication

            replication.back_up(kept, target, as_json=as_json)
            return
        with bar("copying", as_json=as_json) as progress:
            copy = kept.backup(Path(target), progress)
    if as_json:
        typer.echo(msgspec.json.encode(copy).decode())
    else:
        typer.echo(shown(f"{copy.path}: {counted(copy.runs, 'run')}, {copy.bytes:,} bytes, verified"))


@app.command()
def replicate(
    target: Annotated[str, typer.Argument(metavar="DEST", help="s3://bucket/prefix or file:///directory.")],
    every: Annotated[str, typer.Option("--every", help="How often to copy what has changed.")] = "1s",
    snapshot: Annotated[str, typer.Option("--snapshot", help="How often to copy everything again.")] = "1h",
    keep: Annotated[str, typer.Option("--keep", help="Restore to any time as old as this.")] = "7d",
    once: Annotated[bool, typer.Option("--once", help="Copy what there is now, and end.")] = False,
    unfenced: Annotated[
        bool, typer.Option("--unfenced", help="Accept a server that ignores conditional writes.")
    ] = False,
    name: Annotated[
        str, typer.Option("--name", help="The name of this copy in status and metrics.")
    ] = "default",
    standby: Annotated[
        bool, typer.Option("--standby", help="Wait while another replicator copies, and go on after it.")
    ] = False,
    store: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Copy a store to a bucket, until stopped.

    The store may be in use; workers are not slowed down.
    May be killed at any moment and started again. A second one for the same bucket ends with exit code 1,
    or waits with --standby.
    """
    import logging

    from ninelives.cli.operate import replication
    from ninelives.ops.replication.replicator import Options

    logging.basicConfig(format="%(levelname)s %(message)s")
    options = Options(
        name=name,
        every_seconds=interval_ms("--every", every) / 1000,
        snapshot_ms=interval_ms("--snapshot", snapshot),
        keep_ms=age_ms(keep),
        is_fenced=not unfenced,
    )
    replication.replicate(store, target, options, is_once=once, is_standby=standby, as_json=as_json)


@app.command()
def restore(
    source: Annotated[
        str, typer.Argument(metavar="FROM", help="A backup, s3://bucket/prefix or file:///directory.")
    ],
    to: Annotated[
        str, typer.Option("--to", help="The URL of the store to restore into; default: --store.")
    ] = "",
    at: Annotated[str, typer.Option("--at", help="The state at this time, of a bucket.")] = "",
    check: Annotated[
        bool,
        typer.Option(
            "--check", help="Only try it: compare a bucket or file with --store; exit 1 if unequal."
        ),
    ] = False,
    store: Url = DEFAULT_URL,
    replace: Annotated[
        bool,
        typer.Option("--replace", help="Replace an existing SQLite store; it is kept under another name."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Restore a store from a copy.

    Unfinished runs are paused, open actions go to the inbox.
    What a run did after the backup, or after the last copy, is not recorded: check each run before you
    resume it.
    """
    if not is_sqlite_file(source):
        from ninelives.cli.operate import replication

        with bar("reading", as_json=as_json) as progress:
            if check:
                replication.check(source, store, progress, as_json=as_json)
            else:
                replication.restore(source, to or store, at, progress, as_json=as_json)
        return
    if check or at:
        raise UsageError("a SQLite backup has one state", remedy="Leave out --check and --at")
    _restore_file(Path(source), to or store, replaces=replace, as_json=as_json)


def is_sqlite_file(source: str) -> bool:
    """Return whether to restore from a SQLite file: any path but one to a file of capsules, and no URL."""
    import tarfile

    if source.startswith(("s3://", "file://")):
        return False
    path = Path(source)
    return not (path.is_file() and tarfile.is_tarfile(path))


def _restore_file(source: Path, store: str, *, replaces: bool, as_json: bool) -> None:
    from ninelives.cli.options import command as command_line
    from ninelives.stores.clock import SystemClock
    from ninelives.stores.sqlite.files import backups

    path = store.removeprefix("sqlite:///")
    if path == store:
        raise UsageError(
            f"{shown(store)} is not a SQLite store",
            remedy="Restore the backup into SQLite, and copy that with `store backup` and `store restore`",
        )
    with bar("copying", as_json=as_json) as progress:
        done = backups.restore(source, unquote(path), SystemClock(), replaces=replaces, progress=progress)
    if as_json:
        typer.echo(msgspec.json.encode(done).decode())
        return
    emit_paused(done.paused, command_line(["ps"], store))
    for run, step in done.doubts:
        typer.echo(shown(f"in doubt: {step_text(step)} of {run}; see {command_line(['inbox'], store)}"))
    if done.replaced is not None:
        typer.echo(shown(f"the replaced store is kept as {done.replaced}"))
    typer.echo(
        shown(
            f"{done.path}: {counted(done.runs, 'run')} restored, "
            f"{counted(len(done.paused), 'unfinished one')} paused, "
            f"{counted(len(done.doubts), 'action')} in doubt; "
            f"continue with: {command_line(['resume', 'RUN'], store)}, "
            f"or all of an agent with: {command_line(['resume', '--agent', 'AGENT'], store)}"
        )
    )


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
    typer.echo(f"{counted(len(paused), 'unfinished run')} paused; the store can be opened again")
