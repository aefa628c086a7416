"""Retry a failed run: it resumes at the step that failed.

The store makes the run claimable again; its next owner records which outcomes no longer count (see
`core.journal.retry_scope`) and replays the rest. Nothing is deleted, and keys keep their state. If we die
anywhere here, the run is failed as before, or it is claimable and its next owner does the same.
"""

from __future__ import annotations

from contextlib import suppress

import msgspec

from ninelives.core.errors import BadName, RunFinished, UsageError
from ninelives.core.ids import parse_step_id
from ninelives.core.journal.replay import Replay, read_body
from ninelives.core.journal.retry_scope import fatal_steps
from ninelives.core.model.run import Control, Journal, Kind, Record, RunRow, State
from ninelives.store import Store


def retry(store: Store, run: str) -> RunRow:
    """Make a failed run claimable again; does not change a run that has not ended.

    Raises UnknownRun; RunFinished when the run is completed or cancelled, or its compensations were called.
    """
    row = store.read_run(run)
    # Its effects are undone, but recorded as done: a replay would skip them.
    if row is not None and row.state is State.FAILED and _was_undone(store, run):
        raise RunFinished(
            "the run has undone what it had done (nl.on_failure) and cannot go on from there",
            run=run,
            remedy="Start a new run, or fork this one before its first step",
        )
    return store.control_run(run, Control.RETRY)


def is_retried(journal: Journal) -> bool:
    """Return whether the run had ended before: its owner must first record what no longer counts."""
    return journal.records[-1].kind is Kind.END


def retry_children(store: Store, journal: Journal) -> None:
    """Retry the children whose failure made this run fail, now that the run itself is retried.

    Idempotent: a child that has not failed again meanwhile is not changed.
    """
    steps = set(fatal_steps(journal.records))
    for record in journal.records:
        kind, _, child = _name(record).partition(":")
        if kind == "result" and record.step in steps:
            with suppress(UsageError):  # the child was cancelled or forgotten, and will fail the run again
                retry(store, child)


def superseded(store: Store, journal: Journal) -> tuple[str, ...]:
    """Return the steps that a retried run executes again; changes nothing.

    A child that was cancelled with the run is spawned again, under another id.
    """
    steps, replay = dict.fromkeys(fatal_steps(journal.records)), Replay(journal.records)
    known: set[str] = set()  # children whose outcome the run's code got, and continued
    for record in journal.records:
        kind, _, child = _name(record).partition(":")
        if kind == "result" and record.step in steps:
            continue
        if kind in ("result", "cancel") and record.kind in (Kind.RESULT, Kind.FAILURE):
            known.add(child)
    for record in journal.records:
        # Only what still counts: an earlier retry may have spawned another child in the place of this one.
        if record.kind is Kind.RESULT and _name(record).startswith("spawn:") and replay.is_current(record):
            child = msgspec.json.decode(read_body(record).v or b"null", type=str)
            row = store.read_run(child) if child not in known else None
            if row is not None and row.cancelling:
                # The spawn and the wait for its result both go: the new child has another id.
                steps |= {record.step: None}
                steps |= {one.step: None for one in journal.records if _name(one) == f"result:{child}"}
    return tuple(steps)


def _name(record: Record) -> str:
    try:
        return parse_step_id(record.step).name
    except BadName:
        return ""


def _was_undone(store: Store, run: str) -> bool:
    return any(record.kind is Kind.UNDOING for record in store.load_journal(run).records)
