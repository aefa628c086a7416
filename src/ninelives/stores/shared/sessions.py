"""Sessions: what all stores answer about them, what the end of one does to its runs, and a second clock.

A server keeps leases by its wall clock, and that can be set. Set back, it makes a lease last that much
longer; set forward, it ends all leases at once. So each process notes when, by its own boot clock, it first
saw a session's last renewal, and how much of the lease was left then. From there on its own clock counts. For
leases that it renewed itself it knows the exact time. If the server reports at first sight that a lease has
run out, the session is not ended before this process has watched it for half the lease: a live worker renews
it meanwhile. If we die here, the next process starts to watch from its own beginning. See
docs/decisions/0019.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Container, Sequence
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from ninelives.core.errors import IdConflict, LeaseLost
from ninelives.core.journal import recovery_log
from ninelives.core.model.counter import Counts
from ninelives.core.model.log_entry import NewEntry
from ninelives.core.model.run import RunRow
from ninelives.core.model.session import Cause, Evidence, Fate, NewSession, Session
from ninelives.core.rules import counting, deaths, run_rules, validation
from ninelives.stores.shared import rows
from ninelives.stores.shared.server_clock import ServerClock


class Ending(NamedTuple):
    """Why a session ends, what was seen of it, and what it says itself that it has done, if it does."""

    cause: Cause
    evidence: Evidence | None = None
    counts: str = ""


DROPPED = Evidence(is_gone=True, note="its lock was dropped")
"""The evidence of a lock that the kernel drops only when its process has ended."""


def taken(session: str) -> IdConflict:
    """Return the error for a session that exists already."""
    return IdConflict(f"session {session!r} was registered before", remedy="Use a fresh id for each process")


def begun(new: NewSession, now_ms: int) -> Session:
    """Return a session that begins."""
    given = {name: getattr(new, name) for name in NewSession.__struct_fields__}
    return Session(**given, started_ms=now_ms, renewed_ms=now_ms, left_ms=new.lease_ms)


def may_act(name: str, session: Session | None) -> Session:
    """Return a session that may still act. Raises LeaseLost."""
    lost = validation.lease_lost(name, session)
    if session is None or lost is not None:
        raise lost or LeaseLost(name)
    return session


def with_fate(session: Session) -> Session:
    """Return a session with its fate, where nothing but its lease says whether it lives."""
    return replace(session, fate=run_rules.fate_of(session, is_dropped=False))


def gone(
    live: Collection[Session], may_end: Callable[[Session], bool], dropped: Evidence
) -> dict[str, Ending]:
    """Return the sessions that any process may end now, and why; see docs/decisions/0009.

    `may_end` decides whether a lease that has run out may be ended. `dropped` is the evidence for a dropped
    lock that does not prove that everything the process started is gone.
    """
    kept_by = {one.id for one in live if one.fate is Fate.LIVES}
    found: dict[str, Ending] = {}
    for session in live:
        # Proof first: a lock that the kernel dropped needs neither a lease that runs out nor a keeper's word.
        if session.fate is Fate.GONE:
            found[session.id] = Ending(Cause.DIED, DROPPED)
        # An expired lease is ended whatever its keeper does: a keeper that hangs must not strand runs.
        elif session.left_ms <= 0:
            if may_end(session):
                found[session.id] = Ending(Cause.EXPIRED)
        # While the keeper lives, it alone ends the session: it first kills what the process has started.
        elif session.fate is Fate.UNKNOWN and session.keeper not in kept_by:
            found[session.id] = Ending(Cause.DIED, dropped)
    return found


def ended(session: Session, ending: Ending, now_ms: int) -> Session:
    """Return a session after its end; what it has done is in the store's counters from then on."""
    cause, evidence, _ = ending
    return with_fate(replace(session, ended_ms=now_ms, cause=cause, evidence=evidence, counts=""))


class Released(NamedTuple):
    """What the end of a session leaves: its runs, entries for the recovery log, and counts."""

    runs: list[RunRow]
    entries: list[NewEntry]
    counts: Counts


def released(
    session: Session, ending: Ending, owned: Sequence[RunRow], moved: Container[str], now_ms: int
) -> Released:
    """Return what the end of a session leaves; `session` is its row of before.

    `moved` are the runs that have made progress since their last death.
    """
    cause, evidence, handed_over = ending
    after = [deaths.released(run, cause, now_ms, has_progressed=run.id in moved) for run in owned]
    left = [recovery_log.left(session, *pair, cause) for pair in zip(owned, after, strict=True)]
    entries = [recovery_log.ended(session, cause, evidence, len(left)), *left] if left else []
    with rows.decoding("a session's row"):
        done = counting.of_end(session, cause, evidence, handed_over)
    return Released(after, entries, counting.summed(done, counting.of_entries(entries, now_ms)))


# Leases by our own clock ---------------------------------------------------------------------------


class _Seen(Struct, frozen=True):
    """A renewal: the server's time of it, when we first saw it by our clock, and what was left then."""

    renewed_ms: int
    at_ms: int
    left_ms: int
    is_own: bool


class ObservedLeases:
    """What one process has seen of sessions. Without a clock, it trusts the store's."""

    def __init__(self, boot_ms: Callable[[], int] | None) -> None:
        self._boot_ms = boot_ms
        self.clock = ServerClock(boot_ms)
        self._seen: dict[str, _Seen] = {}
        self._lock = threading.Lock()

    def now_ms(self) -> int:
        """Return our own boot clock."""
        return self._boot_ms() if self._boot_ms is not None else 0

    def renewed(self, session: Session, sent_ms: int) -> None:
        """Record that this process began or renewed a session; `sent_ms` is our clock when it sent that."""
        if self._boot_ms is not None:
            with self._lock:
                # Counted from when it was sent: the server's lease
                # began no earlier, so ours never ends after it.
                self._seen[session.id] = _Seen(session.renewed_ms, sent_ms, session.lease_ms, is_own=True)
            self.clock.learn(session.renewed_ms, sent_ms, session.lease_ms)

    def judged(self, session: Session) -> Session:
        """Return a session with what is left of its lease by our clock."""
        if self._boot_ms is None or session.ended_ms is not None:
            return session
        seen = self._observe(session)
        return replace(session, left_ms=max(0, seen.left_ms - (self._boot_ms() - seen.at_ms)))

    def may_end(self, session: Session) -> bool:
        """Return whether a lease that has run out was watched long enough to be ended."""
        if self._boot_ms is None:
            return True
        seen = self._observe(session)
        # Half a lease: a live worker renews three times in one, so it is seen to renew before.
        return seen.left_ms > 0 or self._boot_ms() - seen.at_ms >= session.lease_ms // 2

    def _observe(self, session: Session) -> _Seen:
        with self._lock:
            seen = self._seen.get(session.id)
            if seen is None or seen.renewed_ms != session.renewed_ms:
                # A server's clock that was set back says more than a whole lease is left.
                left_ms = min(session.left_ms, session.lease_ms)
                seen = _Seen(session.renewed_ms, self.now_ms(), left_ms, is_own=False)
                self._seen[session.id] = seen
        return seen

    def judged_own(self, session: Session) -> Session:
        """Return a session that wants to act: if we renewed it, judged by our clock, else by the server's."""
        with self._lock:
            seen = self._seen.get(session.id)
        # Of other sessions we know only when we first saw a renewal,
        # which may be late: for acting that is too generous.
        is_own = seen is not None and seen.is_own and seen.renewed_ms == session.renewed_ms
        return self.judged(session) if is_own else session

    def forget_others(self, names: Collection[str]) -> None:
        """Forget all sessions except these: the others have ended."""
        with self._lock:
            # Else the map grows with every worker that ever lived.
            self._seen = {name: seen for name, seen in self._seen.items() if name in names}
