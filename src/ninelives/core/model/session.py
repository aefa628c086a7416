"""Sessions: one worker process each, as stores keep them."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct


class Cause(StrEnum):
    """Why a session ended. Only DIED and EXPIRED cost a life."""

    STOPPED = "stopped"  # it ended itself, or was asked to (SIGTERM, a deploy)
    DIED = "died"  # its lock was dropped, or its parent saw it die
    EXPIRED = "expired"  # its lease ran out


HUNG = "its event loop was blocked"
"""How the note of a worker begins that was killed because it hung."""


class Fate(StrEnum):
    """What is known of a session's process and of all that it started."""

    LIVES = "lives"
    GONE = "gone"  # proved: no process of it can act any more
    UNKNOWN = "unknown"  # it lost its runs, and may still be running


class Evidence(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What an observer saw of a session's end; kept with the session.

    `is_gone`: its process and all that it started are proved gone (by waitpid, or a dropped lock). `log` are
    its last lines of output; of a worker that hung, its stacks.
    """

    is_gone: bool = False
    signal: int | None = None
    exit_code: int | None = None
    is_oom: bool = False
    note: str = ""
    log: tuple[str, ...] = ()

    @property
    def is_hang(self) -> bool:
        """Whether the worker was killed because it hung."""
        return self.note.startswith(HUNG)


class NewSession(Struct, frozen=True, kw_only=True):
    """What a worker process reports about itself.

    `agents` are those whose code it has loaded. `keeper` is the session of the supervisor that started it:
    while the keeper lives, only the keeper may declare this session dead (see `Store.end_sessions`).
    """

    id: str
    host: str
    pid: int
    code: str = ""
    lease_ms: int = 10_000
    agents: tuple[str, ...] = ()
    keeper: str = ""


class Session(Struct, frozen=True, kw_only=True):
    """A session as of the time it was read: `left_ms` (of its lease) and `fate` change with time.

    `counts` is what it has done by its last renewal (`core.rules.counting.read_counts`), until it ends.
    `halts` is the version of the document `halts`, as of the registration or the renewal that returned this.
    """

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
    counts: str = ""
    fate: Fate = Fate.LIVES
    halts: int = 0

    @property
    def machine(self) -> str:
        """The machine's name for people: the host without the suffix that keeps namesakes apart."""
        return self.host.partition("~")[0]
