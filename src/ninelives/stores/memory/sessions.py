"""Sessions in memory: begin, judge by lease, end and release their runs. Needs the store's lock."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol, TypeVar

from msgspec.structs import replace

from ninelives.core.model.run import RunRow
from ninelives.core.model.session import Cause, NewSession, Session
from ninelives.core.rules import deaths
from ninelives.core.rules import run_rules as rules
from ninelives.stores.memory.lookups import halts_version
from ninelives.stores.memory.recovery_log import append as append_log
from ninelives.stores.memory.tables import SessionLease, Transaction
from ninelives.stores.shared import sessions
from ninelives.stores.shared.sessions import Ending

Answer = TypeVar("Answer")


class Write(Protocol):
    """Runs something under the store's lock."""

    def __call__(self, work: Callable[[Transaction], Answer]) -> Answer: ...


class Sessions:
    """The sessions of a store; leases are judged by its clock."""

    def __init__(self, write: Write) -> None:
        self._write = write

    def register(self, new: NewSession) -> Session:
        """Begin a session."""
        return self._write(lambda tx: _register(tx, new))

    def renew(self, session: str, counts: str) -> Session:
        """Renew the lease of a session that still has one."""
        return self._write(lambda tx: _renew(tx, session, counts))

    def end(self, given: Mapping[str, Ending] | None) -> list[Session]:
        """End the given sessions, or all whose lease has run out."""
        return self._write(lambda tx: _end_all(tx, given))

    def find(self, session: str) -> Session | None:
        """Return a session, ended or not."""
        return self._write(lambda tx: _find(tx, session))

    def live(self) -> list[Session]:
        """Return the sessions that have not ended, oldest first."""
        return self._write(lambda tx: [_read(tx, lease) for lease in _live(tx)])


def owned(tx: Transaction, session: str) -> SessionLease:
    """Return a session's lease. Raises LeaseLost if it no longer has one."""
    sessions.may_act(session, _find(tx, session))
    return tx.contents.sessions[session]


def _register(tx: Transaction, new: NewSession) -> Session:
    if new.id in tx.contents.sessions:
        raise sessions.taken(new.id)
    session = sessions.begun(new, tx.now_ms)
    tx.contents.sessions[new.id] = SessionLease(session, tx.clock.boot_ms())
    return replace(session, halts=halts_version(tx))


def _renew(tx: Transaction, session: str, counts: str) -> Session:
    lease = owned(tx, session)
    lease.session = replace(lease.session, renewed_ms=tx.now_ms, counts=counts or lease.session.counts)
    lease.renewed_boot_ms = tx.clock.boot_ms()
    return replace(_read(tx, lease), halts=halts_version(tx))


def _find(tx: Transaction, session: str) -> Session | None:
    lease = tx.contents.sessions.get(session)
    return _read(tx, lease) if lease is not None else None


def _read(tx: Transaction, lease: SessionLease) -> Session:
    """Return a session with what is left of its lease, and its fate."""
    return sessions.with_fate(replace(lease.session, left_ms=lease.left_ms(tx.clock.boot_ms())))


def _live(tx: Transaction) -> list[SessionLease]:
    return [lease for lease in tx.contents.sessions.values() if lease.session.ended_ms is None]


def _end_all(tx: Transaction, given: Mapping[str, Ending] | None) -> list[Session]:
    live = _live(tx)
    if given is None:
        expired = [lease for lease in live if lease.left_ms(tx.clock.boot_ms()) == 0]
        return [_end(tx, lease, Ending(Cause.EXPIRED)) for lease in expired]
    for lease in tx.contents.sessions.values():
        if lease.session.id in given and lease.session.ended_ms is not None:
            lease.session = rules.proved(lease.session, given[lease.session.id][1])
    return [_end(tx, lease, given[lease.session.id]) for lease in live if lease.session.id in given]


def _end(tx: Transaction, lease: SessionLease, ending: Ending) -> Session:
    """End a session and release its runs."""
    rows, now_ms = tx.contents.rows, tx.now_ms
    owned = [run for run in rows.runs.values() if run.session == lease.session.id]
    moved = {run.id for run in owned if _has_progressed(tx, run)}
    released = sessions.released(lease.session, ending, owned, moved, now_ms)
    lease.session = sessions.ended(lease.session, ending, now_ms)
    rows.runs.update({run.id: run for run in released.runs})
    append_log(tx, released.entries)
    tx.contents.grow(released.counts)
    tx.wakes = True
    return _read(tx, lease)


def _has_progressed(tx: Transaction, run: RunRow) -> bool:
    since = tx.contents.journals[run.id][max(0, run.death_length - run.base) :]
    return any(record.kind not in deaths.NO_PROGRESS for record in since)
