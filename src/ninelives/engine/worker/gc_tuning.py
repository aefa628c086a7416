"""Python's collector of cyclic garbage, at ease while a worker works.

A worker that takes over ten thousand runs makes millions of objects that stay: to look through the young ones
after every 700, as Python does, took half of the time. The threshold is the process's: it is raised while any
worker works and put back after the last. Who has set it higher, or has switched it off, is left alone.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

THRESHOLD = 50_000
"""How many new objects a worker's process makes before the collector looks at them."""

_lock = threading.Lock()
_workers = 0
_before: tuple[int, int, int] | None = None


@contextmanager
def at_ease() -> Iterator[None]:
    """Let the collector look less often for as long as this lasts."""
    _count(1)
    try:
        yield
    finally:
        _count(-1)


@contextmanager
def put_back() -> Iterator[None]:
    """Put the collector back after workers that end without a word, as those of tests do that are killed."""
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
            if young == THRESHOLD:  # else somebody has set it since
                gc.set_threshold(*_before)
            _before = None
