"""What workers are to do, as their supervisor tells them, and the words between the two."""

from __future__ import annotations

import signal

from msgspec import Struct

LINK_FD = 3
"""The socket between a worker and its supervisor: beats one way, end of file (its death) the other."""

READY, BEAT = b"r", b"."
"""A worker says READY once, when its code is loaded and its store is open, and BEAT as long as its event
loop goes round."""

STACK_SIGNAL = signal.SIGRTMIN + 9
"""Makes a worker write the stacks of its threads, even while it holds the interpreter's lock."""

EXIT_USAGE, EXIT_STORE, EXIT_AWAY, EXIT_LEASE = 2, 4, 69, 75
"""How a worker ends whose code cannot be loaded; whose store is unusable, or its server not there just now;
who lost its lease."""

KEEPER, WARD = "NINELIVES_KEEPER", "NINELIVES_WARD"
"""Marks in the environment of a worker and of all that it starts: its supervisor, and the worker itself."""


class WorkerOrder(Struct, frozen=True, kw_only=True):
    """What a fleet's workers are to do; `session` is how the one that is given this is to call its own."""

    target: str
    url: str
    identity: str = ""  # of the store that is served: workers make no new one in its place
    keeper: str = ""
    session: str = ""
    concurrency: int = 100
    limits: dict[str, int] = {}
    processes: int = 1
    lease_seconds: float = 10.0
    hang_seconds: float = 30.0
    start_seconds: float = 120.0
    backoff_seconds: float = 5.0
    patience_seconds: float = 60.0  # with a server that is away before the first worker was ready

    @property
    def beat_seconds(self) -> float:
        """How often a worker tells that its event loop goes round."""
        return min(1.0, self.hang_seconds / 5)
