"""Sessions: which live, which may be ended, and the evidence of each end.

A lock that is dropped while the server keeps running means that the session's connection ended. That is
enough to give its runs to other workers: the old worker is fenced. It does not prove that nothing of the old
worker can act any more, so the session's fate stays unknown until a process has seen it die. See
docs/decisions/0009.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress

from msgspec.structs import replace

from ninelives.core.errors import Corrupt, StoreUnavailable
from ninelives.core.model.document import HALTS
from ninelives.core.model.run import RunRow
from ninelives.core.model.session import Cause, Evidence, Fate, NewSession, Session
from ninelives.core.rules import run_rules
from ninelives.processes import is_dead
from ninelives.stores.postgres import lookups
from ninelives.stores.postgres.recovery_log import append as append_log
from ninelives.stores.postgres.server.death_watch import Ring
from ninelives.stores.postgres.server.open_connection import Connection, is_lost
from ninelives.stores.postgres.server.pool import Before, Pool
from ninelives.stores.postgres.server.session_locks import SessionLock, lock_number
from ninelives.stores.postgres.transaction import Transaction, save_runs
from ninelives.stores.shared import rows, sessions
from ninelives.stores.shared.rows import decoding, texts
from ninelives.stores.shared.sessions import Ending

DROPPED = Evidence(note="its connection to the server ended")
_BOOT = "server"  # leases are judged by the server's clock, which a reboot does not reset
# Longer than a holder needs to connect again after a break (session_locks.py).
_RECHECK_SECONDS, _TRIES = 0.2, 3


class Sessions:
    """The sessions of one store, as one process sees them."""

    def __init__(self, pool: Pool, finish: Before) -> None:
        self._pool, self._finish = pool, finish
        self._schema = pool.address.schema
        self._locks: dict[str, SessionLock] = {}
        self._hosts: set[str] = set()
        self._spare: Connection | None = None
        self._lock = threading.Lock()

    def register(self, new: NewSession) -> Session:
        """Begin a session and hold its lock; see `Store.register_session`."""
        try:
            lock = self._take_lock(new.id) if self._pool.is_direct else None
        except BlockingIOError:
            raise sessions.taken(new.id) from None
        # CRASH: a lock without a session; the server drops it, and nothing refers to it.

        def work(tx: Transaction) -> Session:
            if tx.all("read_sessions", ([new.id],)):
                raise sessions.taken(new.id)
            row = rows.row_of_session(new, tx.now_ms, tx.boot_ms, _BOOT)
            # Whether it has a lock is in the row: behind a pooler
            # there is none, and a missing one must not mean a death.
            tx.do("insert_session", (*row, lock is not None))
            halts = lookups.halts_version(tx.ask("document_version", (HALTS,)))
            return replace(rows.session_of((*row, None, None, None, ""), _BOOT, tx.boot_ms), halts=halts)

        # Read before it is sent: our lease must not end after the server's.
        sent_ms = self._pool.leases.now_ms()
        try:
            session = self._pool.write(work, self._finish)
        except BaseException:
            if lock is not None:
                self._release(lock)
            raise
        self._pool.leases.renewed(session, sent_ms)
        if lock is not None:
            with self._lock:
                self._locks[new.id] = lock
                self._hosts.add(new.host)
        return session

    def renew(self, session: str, counts: str) -> Session:
        """Renew a lease; see `Store.renew_session`."""
        lock, sent_ms = self._locks.get(session), self._pool.leases.now_ms()

        def work(tx: Transaction) -> tuple[Session, bool]:
            # In the same transaction: the server's own list says
            # whether the lock that we believe to hold is there.
            held = tx.ask("held_locks") if lock is not None else None
            halts = tx.ask("document_version", (HALTS,))
            found = may_act(tx, session, tx.all("lock_sessions", (texts([session]),)))
            is_held = lock is not None and lock.is_held
            tx.do("renew_session", (tx.now_ms, tx.boot_ms, is_held, session, counts))
            is_known = held is None or (lock_number(self._schema, session),) in held.fetchall()
            renewed = replace(
                found,
                renewed_ms=tx.now_ms,
                left_ms=found.lease_ms,
                counts=counts or found.counts,
                halts=lookups.halts_version(halts),
            )
            return renewed, is_held and not is_known

        renewed, is_dropped = self._pool.write(work)
        self._pool.leases.renewed(renewed, sent_ms)
        if is_dropped and lock is not None:
            # The server has dropped our lock behind a connection
            # that seems sound: others would soon end this session.
            lock.doubt()
        return renewed

    def find(self, session: str) -> Session | None:
        """Return a session, ended or not."""
        found = self._pool.read(lambda tx: self._read(tx, tx.all("read_sessions", (texts([session]),))))
        return found[0] if found else None

    def live(self) -> list[Session]:
        """Return the sessions that have not ended, oldest first."""
        found = self._pool.read(lambda tx: self._read(tx, tx.all("live_sessions")))
        self._pool.leases.forget_others({one.id for one in found})
        return found

    @property
    def has_own(self) -> bool:
        """Whether this store object has a session with a lock."""
        return bool(self._locks)

    def ring(self) -> Ring:
        """Return the next session after ours in the order of names, and whether any has dropped its lock."""
        own = min(self._locks, default=None)
        if own is None:
            return Ring(None, is_broken=False)

        def work(tx: Transaction) -> tuple[list[rows.Row], set[int]]:
            live = tx.ask("live_sessions")
            held = {number for (number,) in tx.all("held_locks")}
            return live.fetchall(), held

        live, held = self._pool.read(work)
        # Our own sessions never watch each other: one process dies as a whole.
        others = [(row[0], row[15]) for row in live if row[0] not in self._locks]
        is_held = {name: lock_number(self._schema, name) in held for name, _ in others}
        there = [name for name, _ in others if is_held[name]]
        following = min([name for name in there if name > own] or there, default=None)
        return Ring(
            None if following is None else lock_number(self._schema, following),
            is_broken=any(was_held and not is_held[name] for name, was_held in others),
        )

    def end(self, given: Mapping[str, Ending] | None) -> list[Session]:
        """End the given sessions, or all that any process may end; see `Store.end_sessions`."""
        endings = self._gone() if given is None else given
        if not endings:
            return []

        # A session that seems gone while its row is locked is being renewed, or died doing so: skip it now.
        statement = "lock_gone_sessions" if given is None else "lock_sessions"

        def work(tx: Transaction) -> list[Session]:
            found = self._read(tx, tx.all(statement, (texts(list(endings)),)))
            ended = []
            for session in found:
                if session.ended_ms is not None:
                    _prove(tx, session, endings[session.id][1])
                elif given is not None or endings[session.id][0] is Cause.DIED or session.left_ms <= 0:
                    # Between the read and the lock, a lease may have been renewed.
                    ended.append(_release(tx, session, endings[session.id]))
            return ended

        ended = self._pool.write(work, self._finish)
        for session in ended:
            with self._lock:
                lock = self._locks.pop(session.id, None)
            if lock is not None:
                self._release(lock)
        return ended

    def close(self) -> None:
        """Release all locks: the sessions of this store object are over."""
        with self._lock:
            locks, self._locks = list(self._locks.values()), {}
        for lock in locks:
            self._release(lock)
        if self._spare is not None:
            self._spare.close()

    def _release(self, lock: SessionLock) -> None:
        """Release a lock; keep its connection for the next session, since opening one takes a while."""
        left = lock.release()
        with self._lock:
            left, self._spare = self._spare, left or self._spare
        if left is not None and left is not self._spare:
            left.close()

    def _connect(self) -> Connection:
        with self._lock:
            spare, self._spare = self._spare, None
        if spare is not None and is_lost(spare):
            spare.close()
            spare = None
        return spare or self._pool.connect()

    def _gone(self) -> dict[str, Ending]:
        """Return the sessions that any process may end now, and why."""
        live = self._pool.read(lambda tx: self._with_locks(tx, tx.all("live_sessions")))
        dropped = [one for one, _ in live if one.fate is Fate.UNKNOWN and one.left_ms > 0]
        if any(not self._is_missed(one) for one in dropped):
            threading.Event().wait(_RECHECK_SECONDS)  # a holder that lost its connection reconnects
            live = self._pool.read(lambda tx: self._with_locks(tx, tx.all("live_sessions")))
        unlocked = {one.id for one, is_dropped in live if is_dropped}
        return sessions.gone(
            [one for one, _ in live],
            # Two witnesses, the lease and the lock: a clock that
            # was set forward alone ends no session (decision 19).
            lambda one: one.id in unlocked or self._pool.leases.may_end(one),
            DROPPED,
        )

    def _is_missed(self, session: Session) -> bool:
        """Return whether a session is of this host and its process is gone, so that it will not reconnect.

        This only saves a wait. It proves nothing: a container may have the host's name and other processes.
        """
        return session.host in self._hosts and is_dead(session.pid)

    def _take_lock(self, session: str) -> SessionLock:
        number = lock_number(self._schema, session)
        for _ in range(_TRIES):
            with suppress(StoreUnavailable):
                return SessionLock(self._connect, self._pool.sql, number)
        return SessionLock(self._connect, self._pool.sql, number)

    def _read(self, tx: Transaction, found: Sequence[rows.Row]) -> list[Session]:
        return [session for session, _ in self._with_locks(tx, found)]

    def _with_locks(self, tx: Transaction, found: Sequence[rows.Row]) -> list[tuple[Session, bool]]:
        """Return the sessions of rows, and whether each had a lock and has dropped it."""
        if not found:
            return []
        is_locked = {row[0] for row in found if row[15]}
        held = {number for (number,) in tx.all("held_locks")} if is_locked else set()
        judged = []
        for row in found:
            with decoding("a session's row"):
                session = tx.leases.judged(rows.session_of(row[:15], _BOOT, tx.boot_ms))
            is_held = lock_number(self._schema, session.id) in held
            is_dropped = session.id in is_locked and not is_held
            # Not passed on as dropped: on a server that proves the end of a connection, never of a process.
            fate = run_rules.fate_of(
                session, is_dropped=False, is_held=is_held and session.id not in self._locks
            )
            if is_dropped and fate is Fate.LIVES:
                fate = Fate.UNKNOWN
            judged.append((replace(session, fate=fate), is_dropped))
        return judged


def may_act(tx: Transaction, name: str, found: Sequence[rows.Row]) -> Session:
    """Return a session that may still act. Raises LeaseLost."""
    session = None
    if found:
        with decoding("a session's row"):
            session = tx.leases.judged_own(rows.session_of(found[0][:15], _BOOT, tx.boot_ms))
    return sessions.may_act(name, session)


def _prove(tx: Transaction, session: Session, evidence: Evidence | None) -> None:
    after = run_rules.proved(session, evidence)
    if after is not session:
        tx.do("prove_session", (rows.row_of_evidence(after.evidence), session.id))


def _release(tx: Transaction, session: Session, ending: Ending) -> Session:
    """End a session and release its runs, except those whose rows are damaged."""
    cause, evidence, _ = ending
    tx.do("end_session", (tx.now_ms, cause.value, rows.row_of_evidence(evidence), session.id))
    owned: list[RunRow] = []
    for row in tx.all("runs_of_session", (session.id,)):
        # A damaged run must not keep the session's other runs from being released.
        with suppress(Corrupt), decoding("a run's row"):
            owned.append(rows.run_of(row))
    # The recovery log lists them in the same order in every store.
    owned.sort(key=lambda run: run.number)
    suspects = {run.number: run for run in owned if run.deaths > 0}
    since = (list(suspects), [run.death_length for run in suspects.values()])
    moved = {suspects[number].id for (number,) in tx.all("has_progressed", since)} if suspects else ()
    released = sessions.released(session, ending, owned, moved, tx.now_ms)
    save_runs(tx, released.runs)
    append_log(tx, released.entries)
    lookups.add_counts(tx, released.counts)
    tx.wakes = True
    return sessions.ended(session, ending, tx.now_ms)
