"""Lives: what the death of its worker costs a run.

Any of a worker's runs may have killed it. After two worker deaths without progress a run is a suspect.
Suspects are claimed one at a time, by a worker whose other runs have all made progress since, so that the
next death can be attributed. Only such solo deaths count towards quarantine. Progress, or being parked
alive, resets the count.
"""

from __future__ import annotations

from msgspec.structs import replace

from ninelives.core.model.run import Kind, RunRow
from ninelives.core.model.session import Cause
from ninelives.core.model.transitions import Event, advance

# One death may be anything (a kill, a full machine); after a second, the run itself is likely.
SUSPECT_DEATHS = 2
"""From this many deaths without progress, a run is a suspect and runs solo."""

NO_PROGRESS = frozenset({Kind.CREATED, Kind.FORKED, Kind.INTENT, Kind.LOG, Kind.OUTPUT, Kind.PROGRESS})
"""Records that are no progress: a run may write them again after each death without getting further."""


def is_suspect(run: RunRow) -> bool:
    """Return whether the run is a suspect, which runs solo."""
    return run.deaths >= SUSPECT_DEATHS


def waits_solo(run: RunRow) -> str:
    """Return what a due suspect waits for, completing "it waits ..."; empty for other runs."""
    if not is_suspect(run) or run.due_ms is None or run.state.is_final or run.paused:
        return ""
    return f"to run solo: {run.deaths} workers died while running it, without any progress"


def released(run: RunRow, cause: Cause, now_ms: int, *, has_progressed: bool) -> RunRow:
    """Take the run from a session that has ended, and count the death unless it was asked to stop.

    `has_progressed`: a record since `death_length` is not of a kind in NO_PROGRESS.
    """
    # The epoch grows here, not only at the next claim: what the old session still sends is fenced at once.
    deaths, solo = (0, 0) if has_progressed else (run.deaths, run.solo_deaths)
    length = run.death_length
    if cause is not Cause.STOPPED:
        # Only a solo death counts towards quarantine:
        # with others beside it, any of them may have killed the worker.
        deaths, solo, length = deaths + 1, solo + (run.is_alone and not has_progressed), run.length
    return replace(
        run,
        state=advance(run.state, Event.RELEASE, run=run.id),
        session=None,
        epoch=run.epoch + 1,
        due_ms=now_ms,
        waits="",
        deaths=deaths,
        death_length=length,
        solo_deaths=solo,
        is_alone=False,
        left_by=run.session,
        changed_ms=now_ms,
    )


def survived(run: RunRow) -> RunRow:
    """Reset the deaths of a run that its worker parked or ended alive."""
    return replace(run, deaths=0, solo_deaths=0, is_alone=False, left_by=None)
