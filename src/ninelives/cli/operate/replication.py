"""`ninelives store replicate`, and `backup` and `restore` where a bucket or a server is involved."""

from __future__ import annotations

import tarfile
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import datetime
from pathlib import Path

import msgspec
import typer

from ninelives.cli.options import EXIT_FAILED, command, opened
from ninelives.cli.output import emit, emit_paused, say
from ninelives.cli.stopping import stopped_by_signals
from ninelives.core.clock import moment
from ninelives.core.errors import Corrupt, UsageError
from ninelives.core.step_ids import step_text
from ninelives.ops.replication import folding, restoring, term
from ninelives.ops.replication.bucket import Bucket, BucketUnavailable
from ninelives.ops.replication.directory_bucket import DirectoryBucket
from ninelives.ops.replication.opening import is_bucket, open_bucket
from ninelives.ops.replication.replicator import Options, Replicator, Wait
from ninelives.ops.replication.restoring import RestoredCopy
from ninelives.ops.transfer.export import WholeStore, file_to_write
from ninelives.store import Progress
from ninelives.stores.open import open_store
from ninelives.views.counted import counted
from ninelives.views.escape import shown

_TRIES = 5


def replicate(
    url: str, destination: str, options: Options, *, is_once: bool, is_standby: bool, as_json: bool
) -> None:
    """Copy a store to a bucket until stopped, or once."""
    with opened(url) as store, stopped_by_signals() as stop:
        bucket = open_bucket(destination)

        def copy() -> Replicator:
            replicator = Replicator(store, bucket, options, stop.wait, _TRIES if is_once else None)
            try:
                replicator.open()
                if not as_json:
                    say(shown(f"copying {store.url} to {bucket.url}"))
                replicator.run(is_once=is_once)
            except BucketUnavailable:
                if not stop.is_set():
                    raise
            except (Corrupt, UsageError) as error:
                replicator.refuse(error)
                raise
            return replicator

        done = stand_by(copy, stop.wait, say) if is_standby else copy()
        if done is None or not done.is_open:
            return  # stopped before it could begin
        report = done.report
    if as_json:
        typer.echo(msgspec.json.encode(report).decode())
    else:
        copied = f"all that was committed before {_time(report.complete_ms)} is copied"
        so_far = copied if report.complete_ms else "nothing is copied yet"
        emit(shown(f"{report.destination}: {so_far}; {counted(report.segments, 'segment')} so far"))
    for run in report.damaged:
        say(shown(f"not copied, damaged: {run}; see ninelives store verify"))


def stand_by(copy: Callable[[], Replicator], wait: Wait, report: Callable[[str], None]) -> Replicator | None:
    """Copy whenever no other replicator does, until stopped; None when that was while another one did."""
    said = ""
    while True:
        began = time.monotonic()
        try:
            return copy()
        except term.Fenced as error:
            other = error.what.partition(";")[0]
            if other != said or time.monotonic() - began > term.LAPSE_MS / 1000:  # else nothing is new
                report(f"{other}: standing by, to go on within {2 * term.LAPSE_MS // 1000} s of its end")
            said = other
        if wait(term.LAPSE_MS / 1000):
            return None


def back_up(store: WholeStore, destination: str, *, as_json: bool) -> None:
    """Copy a store whole: into a bucket, or into one file of capsules."""
    if is_bucket(destination):
        _copy_once(store, open_bucket(destination))
    else:
        with tempfile.TemporaryDirectory(prefix="ninelives-backup-") as home:
            _copy_once(store, DirectoryBucket(home))
            with (
                file_to_write(Path(destination).absolute()) as file,
                tarfile.open(fileobj=file, mode="w") as packed,
            ):
                for name in DirectoryBucket(home).names(""):
                    packed.add(Path(home) / name, arcname=name)
    if as_json:
        typer.echo(msgspec.json.encode({"path": destination}).decode())
    else:
        typer.echo(shown(f"{destination}: a whole copy of {store.url}"))


def _copy_once(store: WholeStore, bucket: Bucket) -> None:
    # A snapshot each time: a backup is whole, and not a part of something else.
    options = Options(name="", snapshot_ms=0, keep_ms=10**15)
    replicator = Replicator(store, bucket, options, threading.Event().wait, _TRIES)
    replicator.open()
    replicator.run(is_once=True)


@contextmanager
def source_of(source: str) -> Iterator[Bucket]:
    """Yield the bucket of a URL, or of a file that `backup` wrote. Raises UsageError."""
    if is_bucket(source):
        yield open_bucket(source)
        return
    with tempfile.TemporaryDirectory(prefix="ninelives-restore-") as home:
        try:
            with tarfile.open(source) as packed:
                packed.extractall(home, filter="data")
        except (OSError, tarfile.TarError) as error:
            raise UsageError(
                f"{source} is no backup: {error}", remedy="Name a backup, or a bucket"
            ) from error
        yield DirectoryBucket(home)


def restore(source: str, to: str, at: str, progress: Progress, *, as_json: bool) -> None:
    """Restore a copy into an empty store, and say what may be missing."""
    at_ms = _moment(at)
    with source_of(source) as bucket:
        folding.choose(bucket, at_ms)  # before the store is opened: without a copy, none is created
        with closing(open_store(to)) as target:
            done = restoring.restore(bucket, target, at_ms, progress)
    if as_json:
        typer.echo(msgspec.json.encode(done).decode())
        return
    emit_paused(done.paused, command(["ps"], to))
    for run, step in done.doubts:
        typer.echo(shown(f"in doubt: {step_text(step)} of {run}; see {command(['inbox'], to)}"))
    for run in done.damaged:
        typer.echo(shown(f"not in the copy, it was damaged: {run}"))
    before = f" ({done.before} by an earlier restore, and left as they are)" if done.before else ""
    typer.echo(
        shown(
            f"{counted(done.runs, 'run')} restored{before}, "
            f"{counted(len(done.paused), 'unfinished one')} paused, "
            f"{counted(len(done.doubts), 'action')} in doubt; "
            f"continue with: {command(['resume', 'RUN'], to)}, or all of an agent with: "
            f"{command(['resume', '--agent', 'AGENT'], to)}"
        )
    )
    typer.echo(missing(done))


def missing(done: RestoredCopy) -> str:
    """Say what may be missing after a restore."""
    here = f"Everything that was committed before {_time(done.complete_ms)} is here (segment {done.segment})."
    if not done.missing_seconds:  # the last heartbeat came before the last copy
        return f"{here} Whatever was committed after that is missing."
    behind = f"at {_time(done.heartbeat_ms)}, {done.missing_seconds:.1f} s later"
    return f"{here} Whatever was committed after that is missing; the replicator was last alive {behind}."


def check(source: str, url: str, progress: Progress, *, as_json: bool) -> None:
    """Restore into a temporary store, verify that, and compare it with the live store. Exit 1 if unequal."""
    with opened(url) as live, source_of(source) as bucket, tempfile.TemporaryDirectory() as home:
        chosen = folding.choose(bucket, None)
        with closing(open_store(f"sqlite:///{home}/drill.db")) as copy:
            done = restoring.restore(bucket, copy, None, progress)
            folded = folding.fold(bucket, chosen)
            found = restoring.differences(copy, folded, live, done.complete_ms)
    if as_json:
        answer = {"differences": found, "complete_ms": done.complete_ms, "runs": done.runs}
        typer.echo(msgspec.json.encode(answer).decode())
    else:
        for one in found:
            typer.echo(shown(one))
        typer.echo(
            f"{counted(len(found), 'difference')} in {counted(done.runs, 'run')}"
            if found
            else f"{counted(done.runs, 'run')}: no difference"
        )
        typer.echo(missing(done))
    if found:
        raise typer.Exit(EXIT_FAILED)


def _moment(text: str) -> int | None:
    if not text:
        return None
    try:
        when = datetime.fromisoformat(text)
    except ValueError as error:
        raise UsageError(f"{text!r} is no time", remedy="Write it as 2026-11-18T17:30:00Z") from error
    return int((when if when.tzinfo else when.astimezone()).timestamp() * 1000)


def _time(at_ms: int) -> str:
    return moment(at_ms).isoformat(sep=" ", timespec="milliseconds") if at_ms else "never"
