"""`ninelives recoveries`: list which sessions died, which took over, and the outcome."""

from __future__ import annotations

from ninelives.cli.options import opened
from ninelives.cli.output import emit_json, emit_table, moment, say
from ninelives.core.ids import check_id
from ninelives.views.escape import shown
from ninelives.views.position import unknown
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
            (str(one.seq), moment(one.at), one.kind, shown(one.run), shown(one.session), shown(one.text))
            for one in found
        ]
        emit_table(COLUMNS, rows)
    else:
        say("no worker has died yet" if run is None else "no worker has died while it held this run")
