"""Which sessions live, as far as can be told without changing anything."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path

from msgspec import Struct

from ninelives.core.model import Session
from ninelives.store import Store


class Life(StrEnum):
    """Whether a session's process lives."""

    ALIVE = "alive"
    DEAD = "dead"  # its lock was dropped: the process is gone
    EXPIRED = "expired"  # its lease has run out
    ENDED = "ended"  # it was ended, and has no runs any more


class Seen(Struct, frozen=True, kw_only=True):
    """A session, and whether it lives."""

    id: str
    host: str
    pid: int
    state: Life
    lease_left_ms: int


def seen(store: Store) -> dict[str, Seen]:
    """Return the sessions that have not been ended, by id. Looking ends none of them."""
    dropped = _dropped(store)
    return {
        session.id: Seen(
            id=session.id,
            host=session.host,
            pid=session.pid,
            state=_life(session, session.id in dropped),
            lease_left_ms=session.left_ms,
        )
        for session in store.list_sessions()
    }


def ended(session: str) -> Seen:
    """Return what can be said of a session that is not among them."""
    return Seen(id=session, host="", pid=0, state=Life.ENDED, lease_left_ms=0)


def _life(session: Session, is_dropped: bool) -> Life:
    if is_dropped:
        return Life.DEAD
    return Life.ALIVE if session.left_ms > 0 else Life.EXPIRED


def _dropped(store: Store) -> set[str]:
    path = getattr(store, "path", None)
    if not isinstance(path, Path):
        return set()
    from ninelives.backends.sqlite.liveness import SessionLocks

    locks = SessionLocks(path.with_name(f"{path.name}-live"))
    return {session.id for session in store.list_sessions() if locks.is_dropped(session.id)}
