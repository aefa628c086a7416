"""Sessions in the tables: begin, judge by lease, end and release their runs. Needs the store's lock."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from ninelives.core.clock import Clock
from ninelives.core.errors import IdConflict, LeaseLost
from ninelives.core.journal import recovery_log
from ninelives.core.model.log_entry import NewEntry
from ninelives.core.model.session import Cause, Evidence, NewSession, Session
from ninelives.core.rules import deaths, validation
from ninelives.core.rules import run_rules as rules
from ninelives.stores.shared.tables import SessionLease, Tables


def register(tables: Tables, clock: Clock, new: NewSession) -> Session:
    """Begin a session."""
    if new.id in tables.sessions:
        raise IdConflict(
            f"session {new.id!r} was registered before", remedy="Use a fresh id for each process"
        )
    now_ms = clock.now_ms()
    session = Session(
        id=new.id,
        host=new.host,
        pid=new.pid,
        code=new.code,
        lease_ms=new.lease_ms,
        agents=new.agents,
        keeper=new.keeper,
        started_ms=now_ms,
        renewed_ms=now_ms,
        left_ms=new.lease_ms,
    )
    tables.sessions[new.id] = SessionLease(session, clock.boot_ms())
    return session


def owned(tables: Tables, clock: Clock, session: str) -> SessionLease:
    """Return a session's lease. Raises LeaseLost if it no longer has one."""
    lease = tables.sessions.get(session)
    lost = validation.lease_lost(session, read(lease, clock) if lease is not None else None)
    if lease is None or lost is not None:
        raise lost or LeaseLost(session)
    return lease


def renew(tables: Tables, clock: Clock, session: str) -> Session:
    """Renew the lease of a session that still has one."""
    lease = owned(tables, clock, session)
    lease.session = replace(lease.session, renewed_ms=clock.now_ms())
    lease.renewed_boot_ms = clock.boot_ms()
    return read(lease, clock)


def read(lease: SessionLease, clock: Clock) -> Session:
    """Return a session with what is left of its lease, and its fate."""
    session = replace(lease.session, left_ms=lease.left_ms(clock.boot_ms()))
    return replace(session, fate=rules.fate_of(session, is_dropped=False))


def end(
    tables: Tables, clock: Clock, lease: SessionLease, cause: Cause, evidence: Evidence | None
) -> Session:
    """End a session and release its runs."""
    now_ms, rows = clock.now_ms(), tables.rows
    lease.session = replace(lease.session, ended_ms=now_ms, cause=cause, evidence=evidence)
    entries: list[NewEntry] = []
    for run in list(rows.runs.values()):
        if run.session == lease.session.id:
            since = tables.journals[run.id][max(0, run.death_length - run.base) :]
            progressed = any(record.kind not in deaths.NO_PROGRESS for record in since)
            after = rows.runs[run.id] = deaths.released(run, cause, now_ms, has_progressed=progressed)
            entries.append(recovery_log.left(lease.session, run, after, cause))
    if entries:
        log(tables, clock, [recovery_log.ended(lease.session, cause, evidence, len(entries)), *entries])
    return read(lease, clock)


def log(tables: Tables, clock: Clock, new: Sequence[NewEntry]) -> None:
    """Append to the recovery log."""
    head = tables.log[-1].check if tables.log else recovery_log.START
    tables.log.extend(recovery_log.seal(len(tables.log), head, clock.now_ms(), new))
