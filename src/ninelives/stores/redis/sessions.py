"""Sessions: which live by their lease, which may be ended, and the evidence of each end.

Redis releases nothing when a process dies. So a death is known when its supervisor reports it, or when the
lease has run out by the server's clock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress

from msgspec.structs import replace

from ninelives.core.errors import Corrupt
from ninelives.core.model.counter import Counts
from ninelives.core.model.document import HALTS
from ninelives.core.model.log_entry import NewEntry
from ninelives.core.model.run import RunRow
from ninelives.core.model.session import Evidence, NewSession, Session
from ninelives.core.rules import deaths, run_rules
from ninelives.core.rules.counting import summed
from ninelives.stores.redis import encoding, lookups
from ninelives.stores.redis.recovery_log import append as append_log
from ninelives.stores.redis.run_rows import read_runs, save_run
from ninelives.stores.redis.server.pool import Pool
from ninelives.stores.redis.transaction import Transaction
from ninelives.stores.shared import sessions
from ninelives.stores.shared.rows import texts
from ninelives.stores.shared.sessions import Ending


class Sessions:
    """The sessions of one store, as one process sees them."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    def register(self, new: NewSession) -> Session:
        """Begin a session; see `Store.register_session`."""
        sent_ms = self._pool.leases.now_ms()
        session = self._pool.write(lambda tx: register(tx, new))
        self._pool.leases.renewed(session, sent_ms)
        # After the write: only sessions that the server knows can be awaited.
        self._pool.lineage.sessions.add(session.id)
        return session

    def renew(self, session: str, counts: str) -> Session:
        """Renew a lease; see `Store.renew_session`."""
        sent_ms = self._pool.leases.now_ms()
        renewed = self._pool.write(lambda tx: renew(tx, session, counts))
        self._pool.leases.renewed(renewed, sent_ms)
        return renewed

    def end(self, given: Mapping[str, Ending] | None) -> list[Session]:
        """End the given sessions, or all that any process may end; see `Store.end_sessions`."""
        ended = self._pool.write(lambda tx: end(tx, given))
        self._pool.lineage.sessions.difference_update(one.id for one in ended)
        return ended

    def find(self, session: str) -> Session | None:
        """Return a session, ended or not."""
        return self._pool.read(lambda tx: next(iter(read(tx, [session])), None))

    def live(self) -> list[Session]:
        """Return the sessions that have not ended, oldest first."""
        return self._pool.read(live)


def register(tx: Transaction, new: NewSession) -> Session:
    """Begin a session; see `Store.register_session`."""
    name = new.id.encode()
    (known,) = tx.fields([(tx.names.sessions, name)])
    (halts,) = tx.ask([(b"HGET", tx.names.documents, HALTS.encode())])
    if known is not None:
        raise sessions.taken(new.id)
    row = encoding.new_session_bytes(new, tx.now_ms, tx.boot_ms)
    tx.do(b"HSET", tx.names.sessions, name, row)
    tx.do(b"NEXT", tx.names.live, name)
    if new.agents:
        # Supervisors have no agents: they write to no run, so there is nothing of them to wait for.
        tx.do(b"SADD", tx.names.workers, name)
    return replace(encoding.session_of(row, tx.boot_ms)[0], halts=lookups.halts_version(halts))


def renew(tx: Transaction, session: str, counts: str) -> Session:
    """Renew a lease; see `Store.renew_session`."""
    name = session.encode(errors="replace")
    row, halts = tx.ask([(b"HGET", tx.names.sessions, name), (b"HGET", tx.names.documents, HALTS.encode())])
    found = may_act(tx, session, row)  # which compares the row when it is written
    renewed = replace(
        found,
        renewed_ms=tx.now_ms,
        left_ms=found.lease_ms,
        counts=counts or found.counts,
        halts=lookups.halts_version(halts),
    )
    tx.do(b"HSET", tx.names.sessions, session.encode(), encoding.session_bytes(renewed, tx.boot_ms))
    return renewed


def read(tx: Transaction, names: Sequence[str]) -> list[Session]:
    """Return those of these sessions that exist, ended or not; a write requires that they are unchanged."""
    wanted = texts(names)
    found = tx.fields([(tx.names.sessions, name.encode()) for name in wanted])
    known = [encoding.session_of(raw, tx.boot_ms)[0] for raw in found if raw is not None]
    return [sessions.with_fate(tx.leases.judged(one)) for one in known]


def live(tx: Transaction) -> list[Session]:
    """Return the sessions that have not ended, oldest first."""
    (names,) = tx.ask([(b"ZRANGE", tx.names.live, 0, -1)])
    found = [one for one in read(tx, [name.decode() for name in names]) if one.ended_ms is None]
    tx.leases.forget_others({one.id for one in found})
    return found


def end(tx: Transaction, given: Mapping[str, Ending] | None) -> list[Session]:
    """End the given sessions, or all that any process may end; see `Store.end_sessions`."""
    open_ = live(tx)
    if given is None:
        given = sessions.gone(open_, tx.leases.may_end, Evidence())
    elif not given:
        return []
    by_name = {one.id: one for one in read(tx, [name for name in given if name not in {o.id for o in open_}])}
    for session in by_name.values():
        _prove(tx, session, given[session.id][1])
    log: list[NewEntry] = []
    counts: list[Counts] = []
    ended = [_release(tx, one, given[one.id], log, counts) for one in open_ if one.id in given]
    append_log(tx, log)
    lookups.add_counts(tx, summed(*counts))
    return ended


def may_act(tx: Transaction, name: str, row: bytes | None) -> Session:
    """Return a session that may still act; a write requires that it is unchanged. Raises LeaseLost."""
    session = None
    if row is not None:
        session = tx.leases.judged_own(encoding.session_of(row, tx.boot_ms)[0])
        # Renewed or ended meanwhile, the transaction is made again: an ended session must get no run.
        tx.expect(tx.names.sessions, name.encode(), row)
    return sessions.may_act(name, session)


def _write(tx: Transaction, session: Session) -> None:
    (raw,) = tx.fields([(tx.names.sessions, session.id.encode())])
    _, renewed = encoding.session_of(raw or b"", tx.boot_ms)
    tx.do(b"HSET", tx.names.sessions, session.id.encode(), encoding.session_bytes(session, renewed))


def _prove(tx: Transaction, session: Session, evidence: Evidence | None) -> None:
    after = run_rules.proved(session, evidence)
    if after is not session:
        _write(tx, after)


def _release(
    tx: Transaction, session: Session, ending: Ending, log: list[NewEntry], counts: list[Counts]
) -> Session:
    """End a session and release its runs, except those whose rows are damaged."""
    ended = sessions.ended(session, ending, tx.now_ms)
    _write(tx, ended)
    tx.do(b"ZREM", tx.names.live, session.id.encode())
    tx.do(b"HDEL", tx.names.claims, session.id.encode())
    for workers in (tx.names.workers, tx.names.awaited):
        # A dead worker reports no losses: awaiting it would hold up all claims.
        tx.do(b"SREM", workers, session.id.encode())
    owned = _owned(tx, session.id)
    moved = {run.id for run in owned if _has_progressed(tx, run)}
    released = sessions.released(session, ending, owned, moved, tx.now_ms)
    for pair in zip(owned, released.runs, strict=True):
        save_run(tx, *pair)
    log += released.entries
    counts.append(released.counts)
    tx.wakes = True
    return ended


def _owned(tx: Transaction, session: str) -> list[RunRow]:
    # The mark of the last claim guards them; it is read first, and a claim made meanwhile changes it.
    tx.fields([(tx.names.claims, session.encode())])
    (names,) = tx.ask([(b"SMEMBERS", tx.names.owned(session))])
    found: list[RunRow] = []
    for name in names:
        with suppress(Corrupt):
            found += read_runs(tx, [name.decode()]).values()
    return sorted((run for run in found if run.session == session), key=lambda run: run.number)


def _has_progressed(tx: Transaction, run: RunRow) -> bool:
    """Return whether a run that sessions died under has made progress since."""
    if not run.deaths:
        return False
    (found,) = tx.ask([(b"LRANGE", tx.names.journal(run.id), max(0, run.death_length - run.base), -1)])
    records = (encoding.record_of(raw, run.id) for raw in found)
    return any(record.kind not in deaths.NO_PROGRESS for record in records)
