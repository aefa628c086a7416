"""Stop a command that works until a signal comes: Ctrl-C, or SIGTERM from a supervisor.

Stopping so is a courtesy, for a last line of output. What the command does is safe under SIGKILL too.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event


@contextmanager
def stopped_by_signals(*, interrupts: bool = False) -> Iterator[Event]:
    """Yield an event that SIGINT or SIGTERM sets; `interrupts`: it also raises KeyboardInterrupt."""
    stopped = Event()

    def stop(*_: object) -> None:
        stopped.set()
        if interrupts:
            raise KeyboardInterrupt

    before = {one: signal.signal(one, stop) for one in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stopped
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
