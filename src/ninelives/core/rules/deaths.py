"""Lives: what the death of its worker costs a run.

A worker may die of any of the runs that it has. One death says little; from the second without progress on, a
run is a suspect and is given only to a worker that has nothing else but runs that have moved there, so that
the next death tells. Only such deaths count towards its end, and nothing counts once it has made progress, or
was parked alive.
"""

from __future__ import annotations

from msgspec.structs import replace

from ninelives.core.model.run import Kind, RunRow
from ninelives.core.model.session import Cause
from ninelives.core.model.transitions import Event, advance

SUSPECT_DEATHS = 2
"""From so many deaths without progress on, a run is given alone."""

NO_PROGRESS = frozenset({Kind.CREATED, Kind.FORKED, Kind.INTENT, Kind.LOG, Kind.OUTPUT, Kind.PROGRESS})
"""Records that a run may write in every one of its lives without getting anywhere."""


def is_suspect(run: RunRow) -> bool:
    """Tell whether the run is given alone."""
    return run.deaths >= SUSPECT_DEATHS


def waits_alone(run: RunRow) -> str:
    """Say for what a suspect waits that is due; empty for others."""
    if not is_suspect(run) or run.due_ms is None or run.state.is_final or run.paused:
        return ""
    return f"for its turn to run alone: {run.deaths} workers died while they had it, without any progress"


def released(run: RunRow, cause: Cause, now_ms: int, *, has_progressed: bool) -> RunRow:
    """Take the run from a session that is gone, and count the death unless it was told to stop.

    `has_progressed`: there is a record since `death_length` that is none of NO_PROGRESS.
    The epoch grows here too: nothing that session still sends can be taken for its owner's, or for done.
    """
    deaths, solo = (0, 0) if has_progressed else (run.deaths, run.solo_deaths)
    length = run.death_length
    if cause is not Cause.STOPPED:
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
    """Clear what deaths have cost a run that its worker has left alive."""
    return replace(run, deaths=0, solo_deaths=0, is_alone=False, left_by=None)
