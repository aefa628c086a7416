"""Which sessions are alive, as far as a read can say. Ends none of them."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct

from ninelives.core.model.session import Fate, Session
from ninelives.store import Store


class SessionLife(StrEnum):
    """Whether a session's process is alive."""

    ALIVE = "alive"
    DEAD = "dead"  # its lock was dropped: the process is gone
    EXPIRED = "expired"  # its lease has run out
    ENDED = "ended"  # it has ended, and has no runs any more


class SeenSession(Struct, frozen=True, kw_only=True):
    """A session, and whether it is alive."""

    id: str
    host: str
    pid: int
    state: SessionLife
    lease_left_ms: int
    agents: tuple[str, ...] = ()
    keeper: str = ""


def seen(store: Store) -> dict[str, SeenSession]:
    """Return the sessions that have not ended, by id."""
    return {
        session.id: SeenSession(
            id=session.id,
            host=session.machine,
            pid=session.pid,
            state=_life(session),
            lease_left_ms=session.left_ms,
            agents=session.agents,
            keeper=session.keeper,
        )
        for session in store.list_sessions()
    }


def served(living: Mapping[str, SeenSession]) -> frozenset[str]:
    """Return the agents whose code a live worker has loaded."""
    return frozenset(
        agent for one in living.values() if one.state is SessionLife.ALIVE for agent in one.agents
    )


def is_any_starting(living: Mapping[str, SeenSession]) -> bool:
    """Return whether a live supervisor has no worker ready: all are still starting, or restarting."""
    alive = [one for one in living.values() if one.state is SessionLife.ALIVE]
    keepers = {one.keeper for one in alive}
    return any(not one.agents and one.id not in keepers for one in alive)


def ended(session: str) -> SeenSession:
    """Return the entry for a session that is not listed any more."""
    return SeenSession(id=session, host="", pid=0, state=SessionLife.ENDED, lease_left_ms=0)


def _life(session: Session) -> SessionLife:
    if session.fate is Fate.LIVES:
        return SessionLife.ALIVE
    return SessionLife.DEAD if session.fate is Fate.GONE or session.left_ms > 0 else SessionLife.EXPIRED
