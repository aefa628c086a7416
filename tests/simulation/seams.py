"""Where the engine meets threads and clocks: there the machine's are put in, for as long as a seed lasts.

The engine's own code runs as it is; what is exchanged are the modules `threading`, `time`, `random` and
`queue` as some of its rooms see them. Nothing of the engine is rewritten.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from random import Random
from typing import Any
from unittest.mock import patch

from ninelives.engine import lease
from ninelives.engine.commit import committer, ticket
from ninelives.engine.protected import doubt, left_processes
from ninelives.engine.run import run_threads
from ninelives.engine.step import resumable, threads
from ninelives.runtime import runtime, wakeups
from tests.simulation.machine import Machine
from tests.simulation.primitives import Local, SimpleQueue, Threading, Time


@contextmanager
def on(machine: Machine, seed: int) -> Iterator[None]:
    """Let the engine run on the machine."""
    threading, time, random = Threading(machine), Time(machine), Random(f"jitter {seed}")
    changes: list[tuple[Any, str, Any]] = [
        (committer, "threading", threading),
        (committer, "time", time),
        (lease, "threading", threading),
        (ticket, "threading", threading),
        (threads, "threading", threading),
        (threads, "time", time),
        (threads, "SimpleQueue", partial(SimpleQueue, machine)),
        (run_threads, "threading", threading),
        (run_threads, "time", time),
        (run_threads, "_local", Local(machine)),
        (wakeups, "threading", threading),
        (resumable, "time", time),
        (resumable, "random", random),
        (doubt, "time", time),
        (doubt, "random", random),
        (left_processes, "host", lambda: "nowhere"),  # of one another, processes see what the store says
        (left_processes, "_processes", lambda: iter(())),
        (runtime, "SystemClock", lambda: machine.current.process),
    ]
    with ExitStack() as stack:
        for owner, name, new in changes:
            stack.enter_context(patch.object(owner, name, new))
        yield
