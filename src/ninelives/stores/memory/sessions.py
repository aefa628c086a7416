"""Sessions in the tables: begin, judge by lease, end and release their runs. Needs the store's lock."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from ninelives.core.clock import Clock
from ninelives.core.journal import recovery_log
from ninelives.core.model.log_entry import NewEntry
from ninelives.core.model.run import RunRow
from ninelives.core.model.session import Cause, Evidence, NewSession, Session
from ninelives.core.rules import deaths
from ninelives.stores.shared import sessions
from ninelives.stores.shared.tables import SessionLease, Tables


def register(tables: Tables, clock: Clock, new: NewSession) -> Session:
    """Begin a session."""
    if new.id in tables.sessions:
        raise sessions.taken(new.id)
    session = sessions.begun(new, clock.now_ms())
    tables.sessions[new.id] = SessionLease(session, clock.boot_ms())
    return session


def owned(tables: Tables, clock: Clock, session: str) -> SessionLease:
    """Return a session's lease. Raises LeaseLost if it no longer has one."""
    lease = tables.sessions.get(session)
    sessions.may_act(session, read(lease, clock) if lease is not None else None)
    return tables.sessions[session]


def renew(tables: Tables, clock: Clock, session: str) -> Session:
    """Renew the lease of a session that still has one."""
    lease = owned(tables, clock, session)
    lease.session = replace(lease.session, renewed_ms=clock.now_ms())
    lease.renewed_boot_ms = clock.boot_ms()
    return read(lease, clock)


def read(lease: SessionLease, clock: Clock) -> Session:
    """Return a session with what is left of its lease, and its fate."""
    return sessions.with_fate(replace(lease.session, left_ms=lease.left_ms(clock.boot_ms())))


def end(
    tables: Tables, clock: Clock, lease: SessionLease, cause: Cause, evidence: Evidence | None
) -> Session:
    """End a session and release its runs."""
    rows, ending = tables.rows, (cause, evidence)
    owned = [run for run in rows.runs.values() if run.session == lease.session.id]
    moved = {run.id for run in owned if _has_progressed(tables, run)}
    lease.session = sessions.ended(lease.session, ending, clock.now_ms())
    after, entries = sessions.released(lease.session, ending, owned, moved, clock.now_ms())
    rows.runs.update({run.id: run for run in after})
    log(tables, clock, entries)
    return read(lease, clock)


def _has_progressed(tables: Tables, run: RunRow) -> bool:
    since = tables.journals[run.id][max(0, run.death_length - run.base) :]
    return any(record.kind not in deaths.NO_PROGRESS for record in since)


def log(tables: Tables, clock: Clock, new: Sequence[NewEntry]) -> None:
    """Append to the recovery log."""
    head = tables.log[-1].check if tables.log else recovery_log.START
    tables.log.extend(recovery_log.seal(len(tables.log), head, clock.now_ms(), new))
