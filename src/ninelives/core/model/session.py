"""Sessions: the life of one worker process, as stores keep it."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct


class Cause(StrEnum):
    """Why a session ended. Only DIED and EXPIRED cost a life."""

    STOPPED = "stopped"  # it ended itself, or was told to (SIGTERM, a deploy)
    DIED = "died"  # its lock was dropped, or its parent saw it die
    EXPIRED = "expired"  # its lease ran out


class Fate(StrEnum):
    """What is known of a session's process and of all that it started."""

    LIVES = "lives"
    GONE = "gone"  # proved: nothing of it can act any more
    UNKNOWN = "unknown"  # it lost its runs, and may still be about


class Evidence(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the end of a session looked like to who saw it; kept with the session.

    `is_gone` says that its process and all that it started were seen to be gone (waitpid, a dropped lock).
    """

    is_gone: bool = False
    signal: int | None = None
    exit_code: int | None = None
    is_oom: bool = False
    note: str = ""
    log: tuple[str, ...] = ()


class NewSession(Struct, frozen=True, kw_only=True):
    """What a worker process says of itself.

    `agents` are those whose code it has loaded. `keeper` is the session of the supervisor that started it:
    while that one lives, it alone may say that this one is dead (see `Store.end_sessions`).
    """

    id: str
    host: str
    pid: int
    code: str = ""
    lease_ms: int = 10_000
    agents: tuple[str, ...] = ()
    keeper: str = ""


class Session(Struct, frozen=True, kw_only=True):
    """One worker process's life. `left_ms` and `fate` are as they were when this was read."""

    id: str
    host: str
    pid: int
    code: str
    lease_ms: int
    agents: tuple[str, ...] = ()
    keeper: str = ""
    started_ms: int
    renewed_ms: int
    left_ms: int
    ended_ms: int | None = None
    cause: Cause | None = None
    evidence: Evidence | None = None
    fate: Fate = Fate.LIVES

    @property
    def machine(self) -> str:
        """Return the machine's name, for people: the host without what tells it from a namesake."""
        return self.host.partition("~")[0]
