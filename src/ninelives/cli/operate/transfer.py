"""`ninelives export`, `import`, `move`: runs into a file, from a file, and from store to store."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import typer

from ninelives.cli.options import EXIT_FAILED, age_ms, command, opened
from ninelives.cli.output import bar, emit, emit_json, say
from ninelives.core.errors import UsageError
from ninelives.core.model.capsule import Imported
from ninelives.core.model.run import RunQuery, State
from ninelives.core.step_ids import step_text
from ninelives.ops.transfer import moving
from ninelives.ops.transfer.export import export
from ninelives.ops.transfer.importing import RefusedRun, check, import_file, is_held
from ninelives.stores import url as urls
from ninelives.stores.open import open_store
from ninelives.views.counted import counted
from ninelives.views.escape import shown

_PAGE = 500


def write(
    url: str, runs: Sequence[str], target: Path, *, everything: bool, status: str, since: str, as_json: bool
) -> None:
    """Write runs to a file."""
    wanted = selected(runs, everything=everything, status=status, since=since)
    with opened(url) as store, bar("exporting", as_json=as_json) as progress:
        names = list(runs) or find(store, *wanted)
        live = [name for name in names if not _has_ended(store, name)]
        footer = export(store, names, target, progress, is_needed=bool(runs))
        size = target.stat().st_size
    if as_json:
        emit_json({"file": str(target), "runs": footer.runs, "bytes": size, "unfinished": live})
        return
    emit(shown(f"{target}: {counted(footer.runs, 'run')}, {size:,} bytes, sha256 {footer.sha256[:16]}…"))
    if live:
        say(
            f"{counted(len(live), 'of them has', 'of them have')} not ended: this is a copy, and they go on"
            " here. Where it is imported, they are paused. To have them run elsewhere, use: ninelives move"
        )


def _has_ended(store: Any, run: str) -> bool:
    row = store.read_run(run)
    return row is None or row.state.is_final


def selected(
    runs: Sequence[str], *, everything: bool, status: str, since: str
) -> tuple[tuple[State, ...], int | None]:
    """Return the states and the age that are wanted. Raises UsageError when the options contradict."""
    if bool(runs) == (everything or bool(status) or bool(since)):
        what = "runs and a choice of runs" if runs else "export needs runs"
        raise UsageError(what, remedy="Name runs, or give --all, --status or --since")
    if status and status not in tuple(State):
        raise UsageError(f"{status!r} is no status", remedy=f"It is one of {', '.join(State)}")
    return ((State(status),) if status else ()), age_ms(since) if since else None


def find(store: Any, states: tuple[State, ...], age: int | None) -> list[str]:
    """Return the runs in these states that were created within an age, oldest first."""
    found: list[str] = []
    after: int | None = None
    oldest = store.now_ms() - age if age is not None else 0
    while page := store.list_runs(RunQuery(states=states, limit=_PAGE, after=after)):
        found += [row.id for row in page if row.created_ms >= oldest]
        after = page[-1].number
    return found[::-1]


def read(url: str, source: Path, *, only_check: bool, as_json: bool) -> None:
    """Import a file, or only check it."""
    footer = check(source)  # before the store is opened: for a file that is refused, none is created
    if only_check:
        if as_json:
            emit_json({"file": str(source), "runs": footer.runs, "sound": True})
        else:
            emit(shown(f"{source}: {counted(footer.runs, 'run')}, sound"))
        return
    with closing(open_store(url)) as store, bar("importing", as_json=as_json) as progress:
        done = list(import_file(store, source, progress, whole=footer))
    refused = [one for one in done if isinstance(one, RefusedRun)]
    imported = [one for one in done if isinstance(one, Imported)]
    held = [one for one in imported if is_held(one)]
    if as_json:
        emit_json(
            {
                "imported": [one.run.id for one in imported if one.is_new],
                "there": [one.run.id for one in imported if not one.is_new],
                "paused": [one.run.id for one in held],
                "doubts": [[one.run.id, step] for one in held for step in one.doubts],
                "refused": [[one.run, str(one.error)] for one in refused],
            }
        )
    else:
        _say(url, imported, held, refused)
    if refused:
        raise typer.Exit(EXIT_FAILED)


def _say(url: str, imported: list[Imported], held: list[Imported], refused: list[RefusedRun]) -> None:
    for left in refused:
        emit(shown(f"refused {left.run}: {left.error}"))
    for one in held:
        emit(shown(f"paused {one.run.id}: it is a copy, and the original may still run"))
        for step in one.doubts:
            emit(shown(f"in doubt: {step_text(step)} of {one.run.id}; see {command(['inbox'], url)}"))
    new = sum(one.is_new for one in imported)
    more = f", {counted(len(imported) - new, 'was', 'were')} there already" if new < len(imported) else ""
    emit(f"{counted(new, 'run')} imported{more}, {len(refused):,} refused")
    if held:
        emit(
            f"when a run is certain to run nowhere else, continue it with: {command(['resume', 'RUN'], url)}"
        )


def move(url: str, runs: Sequence[str], to: str, *, back: bool, gone: bool, as_json: bool) -> None:
    """Move runs to another store, or call them back."""
    if gone and not back:
        raise UsageError("--never-arrived goes with --back", remedy="Leave it out")
    if not to and not gone:
        gives_up = (
            ", or --never-arrived if that store is gone for good and they never arrived" if back else ""
        )
        raise UsageError("move needs a target", remedy=f"Give the other store's URL with --to{gives_up}")
    with opened(url) as source, ExitStack() as stack:
        target = stack.enter_context(closing(open_store(to))) if to and not gone else None
        warn(source, runs)
        if back or target is None:
            done = moving.call_back(source, target, runs)
        else:
            done = moving.move(source, target, runs)
    if as_json:
        emit_json([{"move": one.id, "runs": one.runs, "arrived": one.has_arrived} for one in done])
        return
    for one in done:
        for run in one.runs:
            said = f"moved to {urls.shown(to)}" if one.has_arrived else "here again; it has not left"
            emit(shown(f"{run}: {said}"))
    if back and any(one.has_arrived for one in done):
        say("what has arrived stays there: the store that it left does not take it back")


def warn(store: Any, runs: Sequence[str]) -> None:
    """Say what will be different elsewhere."""
    for name in runs:
        row = store.read_run(name)
        if row is not None and row.pin is not None:
            say(f"{name} is pinned to the host {row.pin!r}: in the other store only a worker there takes it")
        if row is not None and row.state is State.RUNNING:
            say(
                f"{name} is at work: its worker is cut off, and what it has begun is settled there as after"
                f" a crash. To avoid that: ninelives pause {name}, and move it when it is checkpointed"
            )
