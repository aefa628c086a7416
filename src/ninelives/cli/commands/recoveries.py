"""`ninelives recoveries`: list which sessions died, which took over, and the outcome."""

from __future__ import annotations

from collections.abc import Sequence

from ninelives.cli.options import opened
from ninelives.cli.output import emit, emit_json, emit_table, say, when_text
from ninelives.core.ids import check_id
from ninelives.core.model.log_entry import Happening
from ninelives.core.model.session import HUNG
from ninelives.views.escape import shown
from ninelives.views.position import unknown
from ninelives.views.recoveries import RecoveryEntry
from ninelives.views.recoveries import recoveries as read

COLUMNS = ("seq", "time", "what", "run", "session", "in words")


def recoveries(url: str, run: str | None, *, limit: int, as_json: bool) -> None:
    """Print the recovery log, newest first."""
    run = check_id(run, "run id") if run is not None else None
    with opened(url) as store:
        found = read(store, run, limit)
        if run is not None and not found and store.read_run(run) is None:
            raise unknown(run)
    if as_json:
        emit_json(found)
    elif found:
        rows = [
            (str(one.seq), when_text(one.at), _what(one), shown(one.run), shown(one.session), shown(one.text))
            for one in found
        ]
        emit_table(COLUMNS, rows)
        _emit_stacks(found)
    else:
        say(f"no worker has died while it held {'a run' if run is None else 'this run'}")


def _what(one: RecoveryEntry) -> str:
    """Return what happened in a word; the end of a run that was recovered is its state."""
    return str(one.facts["state"]) if one.kind is Happening.COMPLETED else one.kind.value


def _emit_stacks(found: Sequence[RecoveryEntry]) -> None:
    """Print the stacks of the worker that hung last."""
    for one in found:
        if one.log and HUNG in one.text:
            emit(f"\nthe stacks of session {shown(one.session)}, which hung:")
            emit("\n".join(f"  {shown(line)}" for line in one.log))
            return
