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

from ninelives.engine import committer, doubts, lease, outside, remnants, steps, threads, ticket
from ninelives.runtime import facade, listener
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
        (outside, "threading", threading),
        (outside, "time", time),
        (outside, "_local", Local(machine)),
        (listener, "threading", threading),
        (steps, "time", time),
        (steps, "random", random),
        (doubts, "time", time),
        (doubts, "random", random),
        (remnants, "host", lambda: "nowhere"),  # of one another, processes see what the store says
        (remnants, "_processes", lambda: iter(())),
        (facade, "SystemClock", lambda: machine.current.process),
    ]
    with ExitStack() as stack:
        for owner, name, new in changes:
            stack.enter_context(patch.object(owner, name, new))
        yield
