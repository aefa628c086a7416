"""Sessions: which live, which are provably gone, and the evidence of each end.

A dropped lock proves that the session's process is gone. If the session has a keeper (a supervisor), it does
not prove that the process's children are gone too. While the keeper lives, only the keeper may report that.
Once the keeper is gone, any process may release the runs; the session's fate then stays unknown until a
process has seen that nothing of it is left. See docs/decisions/0009.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from ninelives.core.clock import Clock
from ninelives.core.model.session import Cause, Evidence, Fate, NewSession, Session
from ninelives.core.rules import run_rules
from ninelives.core.rules.restore import RESTORED
from ninelives.stores.shared import rows, sessions
from ninelives.stores.shared.rows import decoding
from ninelives.stores.shared.sessions import DROPPED, Ending
from ninelives.stores.sqlite import checks, claims, lookups
from ninelives.stores.sqlite.files.database import Database
from ninelives.stores.sqlite.transaction import Transaction

# Neither is proof (`is_gone`): what the process started may live on, and only a sweep shows that it does not.
KEPT = Evidence(note="its lock was dropped, and its supervisor's")
LATE = Evidence(note="its lock was dropped later; what it had started may live on")


class Sessions:
    """The sessions of one store, as one process sees them."""

    def __init__(self, files: Database, clock: Clock, damaged: claims.DamagedRuns) -> None:
        self._files, self._clock, self._locks, self._damaged = files, clock, files.locks, damaged

    def register(self, new: NewSession) -> Session:
        """Begin a session and hold its lock; see `Store.register_session`."""
        try:
            with self._files.expected():
                self._locks.hold(new.id)
        except BlockingIOError:
            raise sessions.taken(new.id) from None
        # CRASH: a lock file without a session; nothing refers to it.

        def work(tx: Transaction) -> Session:
            if tx.one("read_session", (new.id,)) is not None:
                raise sessions.taken(new.id)
            row = rows.row_of_session(new, tx.now_ms, self._clock.boot_ms(), self._clock.boot_id)
            tx.do("insert_session", checks.sealed("sessions", (*row, None, None, None, "")))
            return replace(claims.get_session(tx, new.id, self._clock), halts=lookups.halts_version(tx))

        try:
            # From here on the process writes for long: preallocating pays (decision 5).
            self._files.fill_log()
            return self._files.write(work)
        except BaseException:
            # A lock file without a session would be checked by no process, and never be removed.
            self._locks.discard(new.id)
            raise

    def renew(self, session: str, counts: str) -> Session:
        """Renew a lease; see `Store.renew_session`."""
        # Asked with each renewal: a worker on a moved file would write where no other process reads.
        self._files.require_same_file()

        def work(tx: Transaction) -> Session:
            known = claims.get_session(tx, session, self._clock).counts
            tx.do("renew_session", (tx.now_ms, self._clock.boot_ms(), session, counts or known))
            return replace(claims.get_session(tx, session, self._clock), halts=lookups.halts_version(tx))

        # Past the writers' queue: a busy store must not cost its workers their leases.
        return self._files.write(work, urgent=True)

    def end(self, given: Mapping[str, Ending] | None) -> list[Session]:
        """End the given sessions, or all that any process may end; see `Store.end_sessions`."""
        endings = self._gone() if given is None else given
        if not endings:
            return []

        def work(tx: Transaction, damaged: str) -> tuple[list[str], list[Session]]:
            proved = self._prove(tx, endings)
            return proved, self._release(tx, endings, damaged, is_proof=given is not None)

        def suspects(tx: Transaction) -> list[int]:
            return [row[0] for one in endings for row in tx.all("numbers_of_session", (one,))]

        proved, ended = self._damaged.write(work, suspects, urgent=True)
        # The process of an expired session may still live; its lock, which we keep, will show its death.
        over = [session.id for session in ended if session.cause is not Cause.EXPIRED]
        for name in (*over, *filter(self._locks.is_dropped, proved)):
            self._locks.discard(name)
        return ended

    def find(self, session: str) -> Session | None:
        """Return a session, ended or not."""
        return self._files.read(lambda tx: self._find(tx, session))

    def live(self) -> list[Session]:
        """Return the sessions that have not ended, oldest first."""
        return self._files.read(self._live)

    def _live(self, tx: Transaction) -> list[Session]:
        return [self._read(row) for row in tx.all("live_sessions")]

    def _find(self, tx: Transaction, session: str) -> Session | None:
        row = tx.one("read_session", (session,))
        return self._read(row) if row is not None else None

    def _gone(self) -> dict[str, Ending]:
        """Return the sessions that any process may end now, and why."""
        live, swept = self._files.read(lambda tx: (self._live(tx), self._swept(tx)))
        self._sweep(swept)
        return sessions.gone(live, lambda _: True, KEPT)

    def _release(
        self, tx: Transaction, endings: Mapping[str, Ending], damaged: str, *, is_proof: bool
    ) -> list[Session]:
        """End sessions that have not ended; unless `is_proof`, only if the reason still holds."""
        # Between the read and this transaction a lease may have been renewed. A death cannot be undone.
        ending = [
            session
            for session in self._live(tx)
            if session.id in endings
            and (is_proof or endings[session.id][0] is Cause.DIED or session.left_ms <= 0)
        ]
        for session in ending:
            claims.release(tx, session, endings[session.id], damaged)
        found = (self._find(tx, session.id) for session in ending)
        return [session for session in found if session is not None]

    def _prove(self, tx: Transaction, endings: Mapping[str, Ending]) -> list[str]:
        """Add to ended sessions the evidence that they are gone; return those that had none before."""
        proved = []
        for name, (_, evidence, _) in endings.items():
            session = self._find(tx, name) if evidence is not None and evidence.is_gone else None
            if session is not None and session.ended_ms is not None:
                after = run_rules.proved(session, evidence)
                if after is not session:
                    tx.do("prove_session", (rows.row_of_evidence(after.evidence), name))
                    proved.append(name)
        return proved

    def _swept(self, tx: Transaction) -> dict[str, Evidence]:
        """Return the sessions that expired and whose processes ended later, with the evidence."""
        expired = ((row[0], row[6]) for row in tx.all("expired_sessions"))
        return {name: LATE if keeper else DROPPED for name, keeper in expired if self._locks.is_dropped(name)}

    def _sweep(self, swept: Mapping[str, Evidence]) -> None:
        """Remove the lock files of sessions that expired and whose processes have gone since."""
        if not swept:
            return

        def work(tx: Transaction) -> None:
            for name, evidence in swept.items():
                tx.do("sweep_session", (rows.row_of_evidence(evidence), name))

        self._files.write(work, urgent=True)
        # CRASH: lock files that are no longer needed; the rows hold the same evidence.
        for session in swept:
            self._locks.discard(session)

    def _read(self, row: rows.Row) -> Session:
        with decoding("a session's row"):
            session = rows.session_of(row, self._clock.boot_id, self._clock.boot_ms())
            is_of_this_boot = row[10] == self._clock.boot_id
        if not is_of_this_boot and session.ended_ms is not None and session.evidence != RESTORED:
            # No process survives a reboot; but a restored store may be on another machine than its workers.
            return replace(session, fate=Fate.GONE)
        held = self._locks.is_held(session.id)
        return replace(
            session, fate=run_rules.fate_of(session, is_dropped=held is False, is_held=held is True)
        )
