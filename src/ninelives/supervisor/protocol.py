"""The protocol between a supervisor and its workers: configuration, beats, exit codes, marks."""

from __future__ import annotations

import signal

from msgspec import Struct

from ninelives.logs.log_format import LogFormat

LINK_FD = 3
"""Socket between worker and supervisor: carries the worker's beats; end of file means the other side died."""

READY, BEAT = b"r", b"."
"""A worker sends READY once, when its code is loaded and its store is open, and BEAT regularly while its
event loop runs."""

STACK_SIGNAL = signal.SIGRTMIN + 9
"""Makes a worker print the stacks of its threads, even while some C code holds the GIL."""

EXIT_USAGE, EXIT_STORE, EXIT_AWAY, EXIT_LEASE = 2, 4, 69, 75
"""Exit codes of a worker: its code cannot be loaded; its store is unusable; the store's server is
unreachable; its lease was lost."""

SUPERVISOR_MARK, WORKER_MARK = "NINELIVES_KEEPER", "NINELIVES_WARD"
"""Environment variables of a worker and all its descendants: they name the supervisor and the worker."""


class WorkerSettings(Struct, frozen=True, kw_only=True):
    """The configuration of a worker; `keeper` is its supervisor's session id, `session` its own."""

    target: str
    url: str
    identity: str = ""  # of the store: a worker must not create a new store at the same URL
    keeper: str = ""
    session: str = ""
    concurrency: int = 100
    limits: dict[str, int] = {}
    processes: int = 1
    lease_seconds: float = 10.0
    hang_seconds: float = 30.0
    start_seconds: float = 120.0
    backoff_seconds: float = 5.0
    log: LogFormat = LogFormat.TEXT
    policy: str = ""  # the path of a policy file
    patience_seconds: float = 60.0  # for an unreachable server, until the first worker is ready

    @property
    def beat_seconds(self) -> float:
        """The interval of a worker's beats."""
        return min(1.0, self.hang_seconds / 5)
