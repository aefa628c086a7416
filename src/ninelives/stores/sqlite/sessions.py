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
from ninelives.core.model.session import Cause, Evidence, Fate, Session
from ninelives.core.rules import run_rules
from ninelives.core.rules.restore import RESTORED
from ninelives.stores.shared import rows, sessions
from ninelives.stores.shared.sessions import DROPPED, Ending
from ninelives.stores.sqlite import claims
from ninelives.stores.sqlite.files.session_locks import SessionLocks
from ninelives.stores.sqlite.transaction import Transaction, decoding

KEPT = Evidence(note="its lock was dropped, and its supervisor's")
LATE = Evidence(note="its lock was dropped later; what it had started may live on")


class Watch:
    """The sessions of one store, as one process sees them."""

    def __init__(self, clock: Clock, locks: SessionLocks) -> None:
        self._clock, self._locks = clock, locks

    def live(self, tx: Transaction) -> list[Session]:
        """Return the sessions that have not ended, oldest first."""
        return [self._read(row) for row in tx.all("live_sessions")]

    def find(self, tx: Transaction, session: str) -> Session | None:
        """Return a session, ended or not."""
        row = tx.one("read_session", (session,))
        return self._read(row) if row is not None else None

    def gone(self, live: list[Session]) -> dict[str, Ending]:
        """Return the sessions that any process may end now, and why."""
        return sessions.gone(live, lambda _: True, KEPT)

    def end(
        self, tx: Transaction, endings: Mapping[str, Ending], damaged: str, *, is_proof: bool
    ) -> list[Session]:
        """End sessions that have not ended; unless `is_proof`, only if the reason still holds."""
        # Between the read and this transaction a lease may have been renewed. A death cannot be undone.
        ending = [
            session
            for session in self.live(tx)
            if session.id in endings
            and (is_proof or endings[session.id][0] is Cause.DIED or session.left_ms <= 0)
        ]
        for session in ending:
            claims.release(tx, session, *endings[session.id], damaged)
        found = (self.find(tx, session.id) for session in ending)
        return [session for session in found if session is not None]

    def prove(self, tx: Transaction, endings: Mapping[str, Ending]) -> list[str]:
        """Add to ended sessions the evidence that they are gone; return those that had none before."""
        proved = []
        for name, (_, evidence) in endings.items():
            session = self.find(tx, name) if evidence is not None and evidence.is_gone else None
            if session is not None and session.ended_ms is not None:
                after = run_rules.proved(session, evidence)
                if after is not session:
                    tx.do("prove_session", (rows.row_of_evidence(after.evidence), name))
                    proved.append(name)
        return proved

    def swept(self, tx: Transaction) -> dict[str, Evidence]:
        """Return the sessions that expired and whose processes ended later, with the evidence."""
        expired = ((row[0], row[6]) for row in tx.all("expired_sessions"))
        return {name: LATE if keeper else DROPPED for name, keeper in expired if self._locks.is_dropped(name)}

    def sweep(self, tx: Transaction, swept: Mapping[str, Evidence]) -> None:
        """Store that evidence in the rows: the lock files that show the same are removed after this."""
        for name, evidence in swept.items():
            tx.do("sweep_session", (rows.row_of_evidence(evidence), name))

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
