"""Retrying a failed run: it goes on from the step that failed.

The store makes the run claimable again; its next owner records which outcomes no longer count (see
`core.supersession`) and replays the rest. Nothing is deleted, and keys stay as they are. If we die anywhere
here, the run is failed as before, or it is claimable and its next owner does the same.
"""

from __future__ import annotations

from ninelives.core.errors import RunFinished
from ninelives.core.model import Control, Kind, Run, State
from ninelives.store import Store


def retry(store: Store, run: str) -> Run:
    """Let a failed run go on; one that has not ended is left alone.

    Raises UnknownRun; RunFinished when it is completed or cancelled, or when what it did has been undone.
    """
    row = store.read_run(run)
    if row is not None and row.state is State.FAILED and _was_undone(store, run):
        raise RunFinished(
            "the run has undone what it had done (nl.on_failure) and cannot go on from there",
            run=run,
            remedy="Start a new run, or fork this one before its first step",
        )
    return store.control_run(run, Control.RETRY)


def _was_undone(store: Store, run: str) -> bool:
    return any(record.kind is Kind.UNDOING for record in store.load_journal(run).records)
