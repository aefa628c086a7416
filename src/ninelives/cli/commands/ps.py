"""`ninelives ps`: list runs with the state and position of each."""

from __future__ import annotations

from ninelives.cli.options import opened
from ninelives.cli.output import age, emit_json, emit_table, say
from ninelives.core.errors import UsageError
from ninelives.core.model.run import RunQuery, State
from ninelives.views.position import Summary, summaries
from ninelives.views.records_text import moment
from ninelives.views.sessions import SeenSession, SessionLife

COLUMNS = ("id", "agent", "status", "turn", "steps", "progress", "waits", "session", "age", "updated")
_UNFINISHED = tuple(state for state in State if not state.is_final)


def ps(
    url: str,
    *,
    statuses: list[str],
    agent: str | None,
    labels: list[str],
    limit: int,
    after: int | None,
    every: bool,
    as_json: bool,
) -> None:
    """List runs, newest first."""
    query = RunQuery(
        states=_states(statuses, every),
        agent=agent,
        labels=dict(label_of(label) for label in labels),
        limit=limit + 1,
        after=after,
    )
    with opened(url) as store:
        found = summaries(store, query)
        now = moment(store.now_ms())
    page = found[:limit]
    if as_json:
        emit_json(page)
    elif page:
        emit_table(COLUMNS, [_row(run, now.timestamp()) for run in page])
    else:
        say("no runs" if every or statuses else "no unfinished runs; --all also shows runs that have ended")
    if len(found) > limit and page:
        say(f"there are more: --after {page[-1].number} shows the next page, --limit makes pages longer")


def _states(statuses: list[str], every: bool) -> tuple[State, ...]:
    try:
        given = tuple(State(status) for status in statuses)
    except ValueError:
        known = ", ".join(state.value for state in State)
        raise UsageError(f"--status {statuses[-1]!r}", remedy=f"Give one of {known}") from None
    return given or (() if every else _UNFINISHED)


def label_of(text: str) -> tuple[str, str]:
    """Return the name and value of a label written as NAME=VALUE. Raises UsageError."""
    name, equals, value = text.partition("=")
    if not equals:
        raise UsageError(f"--label {text!r}", remedy="Write it as NAME=VALUE")
    return name, value


def _row(run: Summary, now: float) -> tuple[str, ...]:
    return (
        run.id,
        run.agent,
        status_of(run),
        str(run.turn),
        "damaged" if run.steps is None else str(run.steps),
        str(run.progress) if run.progress is not None else "",
        run.waits,
        session_text(run.session) if run.session is not None else "",
        age(now - run.created.timestamp()),
        f"{age(now - run.updated.timestamp())} ago",
    )


def status_of(run: Summary) -> str:
    """Return a run's state as text, with what qualifies it: paused, cancelling, no worker."""
    notes = []
    if run.session is not None and run.session.state is not SessionLife.ALIVE:
        notes.append(f"session {run.session.state}")
    if run.next_wake_up is not None and not run.is_loaded:
        notes.append("its workers are being started" if run.is_starting else "no worker has its code loaded")
    if run.paused:
        notes.append("paused")
    if run.cancelling and not run.status.is_final:
        notes.append("cancelling")
    return run.status + (f" ({', '.join(notes)})" if notes else "")


def session_text(session: SeenSession) -> str:
    """Return a session's id, with its state if it is not alive."""
    return session.id if session.state is SessionLife.ALIVE else f"{session.id} ({session.state})"
