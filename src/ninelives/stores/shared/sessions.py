"""Sessions: what all stores answer about them, and what the end of one does to its runs."""

from __future__ import annotations

from collections.abc import Container, Sequence

from msgspec.structs import replace

from ninelives.core.errors import IdConflict, LeaseLost
from ninelives.core.journal import recovery_log
from ninelives.core.model.log_entry import NewEntry
from ninelives.core.model.run import RunRow
from ninelives.core.model.session import Cause, Evidence, Session
from ninelives.core.rules import deaths, run_rules, validation

Ending = tuple[Cause, Evidence | None]


def taken(session: str) -> IdConflict:
    """Return the error for a session that exists already."""
    return IdConflict(f"session {session!r} was registered before", remedy="Use a fresh id for each process")


def may_act(name: str, session: Session | None) -> Session:
    """Return a session that may still act. Raises LeaseLost."""
    lost = validation.lease_lost(name, session)
    if session is None or lost is not None:
        raise lost or LeaseLost(name)
    return session


def with_fate(session: Session) -> Session:
    """Return a session with its fate, where nothing but its lease says whether it lives."""
    return replace(session, fate=run_rules.fate_of(session, is_dropped=False))


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
