"""Quarantine: escalate a run after `lives` (by default nine) workers died while it ran solo.

Only deaths without progress count, and of them not those that made it a suspect. The evidence describes each
of those that count. While the run waits for a person, it kills no more workers.
"""

from __future__ import annotations

import signal

import msgspec

from ninelives.core.errors import StoreError
from ninelives.core.journal.answers import ItemBody
from ninelives.core.journal.recovery_log import Left
from ninelives.core.model.inbox import ItemKind
from ninelives.core.model.log_entry import Happening, LogEntry
from ninelives.core.model.session import Cause, Evidence, Session
from ninelives.engine.commit.loop_commits import LoopCommits
from ninelives.engine.run.execution import Execution
from ninelives.engine.worker import escalation
from ninelives.engine.worker.event_loop import StoreCaller
from ninelives.store import Store

_MOST_ENTRIES = 200
_LAST_LINES, _LINE_CHARACTERS = 5, 300


async def quarantine(calls: StoreCaller, commits: LoopCommits, execution: Execution) -> None:
    """Escalate a run that is out of lives."""
    run = execution.run
    nothing = f"after {run.length} records; what came next was not recorded as begun"
    under_way = ", ".join(execution.replay.intents) or nothing
    request = ItemBody(
        what=f"out of lives: {run.deaths} workers died while they executed this run, without any progress; "
        f"during the last {run.solo_deaths} it ran solo: nothing was begun beside it ({under_way})",
        remedy="Find out what kills it (memory, a native library, os._exit); retry gives it new lives",
        evidence=await calls.call(_deaths, run.id, run.solo_deaths),
    )
    step = next(iter(execution.replay.intents), None)
    await escalation.escalate(calls, commits, execution, ItemKind.QUARANTINE, request, step=step)


def _deaths(store: Store, run: str, count: int) -> dict[str, str]:
    """Return descriptions of the last solo deaths of a run, oldest first."""
    try:
        entries = store.read_log(run=run, limit=_MOST_ENTRIES)
    except StoreError as error:
        return {"deaths": f"the recovery log cannot be read: {error.what}"}
    found = [entry for entry in entries if entry.kind is Happening.LEFT and _was_solo(entry)][:count]
    return {
        f"death {number}": described(store.read_session(entry.session))
        for number, entry in enumerate(reversed(found), 1)
    }


def _was_solo(entry: LogEntry) -> bool:
    left = msgspec.json.decode(entry.body, type=Left)
    # A worker that was stopped did not die of the run.
    return left.was_solo and left.cause is not Cause.STOPPED


def described(session: Session | None) -> str:
    """Describe the end of a session: process, cause of death and its last log lines."""
    if session is None:
        return "nothing is known of the worker"
    where = f"pid {session.pid} on {session.machine}"
    seen = session.evidence or Evidence()
    parts = [manner(session.cause, seen)]
    if seen.note and seen.note not in parts[0]:
        parts.append(seen.note)
    lines = [line[:_LINE_CHARACTERS] for line in seen.log[-_LAST_LINES:]]
    if lines:
        parts.append("its last lines: " + " | ".join(lines))
    return f"{where}: {'; '.join(parts)}"


def manner(cause: Cause | None, seen: Evidence | None) -> str:
    """Describe how a session ended: stopped, hung, killed, exited, expired or died."""
    if cause is Cause.STOPPED:  # first: a supervisor stops its workers by SIGKILL, and that is no crash
        return "was stopped (by SIGTERM, or for new code)"
    if seen is not None and seen.is_oom:
        return "was killed because its memory ran out"
    if seen is not None and seen.is_hang:
        return f"hung: {seen.note}"
    if seen is not None and seen.signal is not None:
        known = {one.value for one in signal.Signals}
        name = signal.Signals(seen.signal).name if seen.signal in known else f"signal {seen.signal}"
        return f"was killed by {name}"
    if seen is not None and seen.exit_code is not None:
        return f"ended with exit code {seen.exit_code}"
    return "gave no sign of life until its lease ran out" if cause is Cause.EXPIRED else "died"
