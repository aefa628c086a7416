"""Sessions: what all stores answer about them, and what the end of one does to its runs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Sequence

from msgspec.structs import replace

from ninelives.core.errors import IdConflict, LeaseLost
from ninelives.core.journal import recovery_log
from ninelives.core.model.log_entry import NewEntry
from ninelives.core.model.run import RunRow
from ninelives.core.model.session import Cause, Evidence, Fate, NewSession, Session
from ninelives.core.rules import deaths, run_rules, validation

Ending = tuple[Cause, Evidence | None]
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

    `may_end` judges a lease that has run out, `dropped` is the evidence of a dropped lock that proves little.
    """
    kept_by = {one.id for one in live if one.fate is Fate.LIVES}
    found: dict[str, Ending] = {}
    for session in live:
        if session.fate is Fate.GONE:
            found[session.id] = Cause.DIED, DROPPED
        elif session.left_ms <= 0:
            if may_end(session):
                found[session.id] = Cause.EXPIRED, None
        elif session.fate is Fate.UNKNOWN and session.keeper not in kept_by:
            found[session.id] = Cause.DIED, dropped
    return found


def ended(session: Session, ending: Ending, now_ms: int) -> Session:
    """Return a session after its end."""
    cause, evidence = ending
    return with_fate(replace(session, ended_ms=now_ms, cause=cause, evidence=evidence))


def released(
    session: Session, ending: Ending, owned: Sequence[RunRow], moved: Container[str], now_ms: int
) -> tuple[list[RunRow], list[NewEntry]]:
    """Return the runs of a session that ends, and what the recovery log says about them.

    `moved` are those that have made progress since their last death.
    """
    cause, evidence = ending
    after = [deaths.released(run, cause, now_ms, has_progressed=run.id in moved) for run in owned]
    left = [recovery_log.left(session, *pair, cause) for pair in zip(owned, after, strict=True)]
    return after, [recovery_log.ended(session, cause, evidence, len(left)), *left] if left else []
