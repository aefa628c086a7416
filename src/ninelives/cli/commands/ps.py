"""`ninelives ps`: list runs with the state and position of each."""

from __future__ import annotations

from msgspec.structs import replace

from ninelives.cli.options import opened
from ninelives.cli.output import age, emit_json, emit_table, say
from ninelives.core.errors import UsageError
from ninelives.core.model.run import RunQuery, State
from ninelives.governance.halts import read_halts
from ninelives.views.escape import shortened
from ninelives.views.position import Summary, summaries
from ninelives.views.sessions import SeenSession, SessionLife
from ninelives.views.waiting import waiting

COLUMNS = ("id", "agent", "status", "turn", "steps", "progress", "waits", "session", "age", "updated")
DAY_MS = 86_400_000
_WAITS_CHARACTERS = 160
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
    """List runs, newest first; by default unfinished ones, and those that failed in the last day."""
    query = RunQuery(
        states=states_of(statuses) or (() if every else _UNFINISHED),
        agent=agent,
        labels=dict(label_of(label) for label in labels),
        limit=limit + 1,
        after=after,
    )
    is_default = not every and not statuses
    with opened(url) as store:
        now_ms = store.now_ms()
        found = summaries(store, query)
        if is_default:
            lately = {"states": (State.FAILED,), "changed_since_ms": now_ms - DAY_MS}
            found += summaries(store, replace(query, **lately))
            found.sort(key=lambda run: run.number, reverse=True)
        now = now_ms / 1000
        halts = read_halts(store, now_ms)
    for halt in halts:
        say(f"halted: {halt.what}, by {halt.by}: {halt.reason} ({halt.id})")
    page = found[:limit]
    if as_json:
        emit_json(page)
    elif page:
        emit_table(COLUMNS, [_row(run, now) for run in page])
    else:
        nothing = (
            "no unfinished runs, and none that failed in the last day; --all also shows runs that have ended"
        )
        say(nothing if is_default else "no runs")
    if len(found) > limit and page:
        say(f"there are more: --after {page[-1].number} shows the next page, --limit makes pages longer")


def states_of(statuses: list[str]) -> tuple[State, ...]:
    """Return the states of these names. Raises UsageError."""
    try:
        return tuple(State(status) for status in statuses)
    except ValueError:
        known = ", ".join(state.value for state in State)
        raise UsageError(f"--status {statuses[-1]!r}", remedy=f"Give one of {known}") from None


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
        ("encrypted" if "is encrypted with" in run.fault else "damaged")
        if run.steps is None
        else str(run.steps),
        str(run.progress) if run.progress is not None else "",
        shortened(waiting(run, now), _WAITS_CHARACTERS),
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
