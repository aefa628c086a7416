"""Raise the threshold of Python's cyclic garbage collector while any worker runs.

A worker that takes over ten thousand runs creates millions of long-lived objects; collecting the youngest
generation after every 700, as Python does, took half of the time. The threshold belongs to the process: it is
raised by the first worker and restored after the last. A process that set it higher, or disabled the
collector, keeps its setting.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

THRESHOLD = 50_000
"""How many new objects a worker's process makes before the collector examines them."""

_lock = threading.Lock()
_workers = 0
_before: tuple[int, int, int] | None = None


@contextmanager
def at_ease() -> Iterator[None]:
    """Collect less often while the block runs."""
    _count(1)
    try:
        yield
    finally:
        _count(-1)


@contextmanager
def put_back() -> Iterator[None]:
    """Restore the collector after workers that end without cleanup, such as killed ones in tests."""
    global _workers, _before
    with _lock:
        workers, before, threshold = _workers, _before, gc.get_threshold()
    try:
        yield
    finally:
        with _lock:
            _workers, _before = workers, before
            gc.set_threshold(*threshold)


def _count(change: int) -> None:
    global _workers, _before  # noqa: PLW0603
    with _lock:
        _workers += change
        young, *older = now = gc.get_threshold()
        if change > 0 and _workers == 1 and 0 < young < THRESHOLD:
            _before = now
            gc.set_threshold(THRESHOLD, *older)
        elif _workers == 0 and _before is not None:
            if young == THRESHOLD:  # else other code has set it since
                gc.set_threshold(*_before)
            _before = None
