"""A store that kills its own process before or after the k-th call, and notes where it is.

It wraps any store, knows none of its methods, and is the outermost thing: what it kills before was never
begun, what it kills after was done and nobody was told.
"""

from __future__ import annotations

import mmap
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

Side = Literal["before", "after"]
_MARK_BYTES = 256


class KillPoint(Struct, frozen=True):
    """The moment to die: before or after the n-th call, counted from 1."""

    call: int
    side: Side


class Mark:
    """Where a process is, in a page that outlives it."""

    def __init__(self, path: Path) -> None:
        if not path.exists():
            path.write_bytes(bytes(_MARK_BYTES))
        with path.open("r+b") as file:
            self._page = mmap.mmap(file.fileno(), _MARK_BYTES)

    def set(self, where: str) -> None:
        """Note where we are."""
        image = where.encode()[: _MARK_BYTES - 1]
        self._page[: len(image) + 1] = image + b"\0"


def read_mark(path: Path) -> str:
    """Return where the process was when it died."""
    if not path.exists():
        return "before its first call"
    return path.read_bytes().partition(b"\0")[0].decode(errors="replace") or "before its first call"


def kill_self() -> None:
    """Die as if by kill -9, which it is."""
    os.kill(os.getpid(), signal.SIGKILL)


class KillingStore:
    """Any store, with a trap at one of its calls."""

    def __init__(self, store: object, point: KillPoint | None = None, mark: Mark | None = None) -> None:
        self._store, self._point, self._mark = store, point, mark
        self._counting = threading.Lock()
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        return self._trapped(name, found) if callable(found) else found

    def _trapped(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            with self._counting:
                self.calls.append(name)
                number = len(self.calls)
            self._pass("before", name, number)
            self._note(f"inside {name}")
            try:
                return method(*args, **kwargs)
            finally:  # a call that was refused is over, too
                self._note(f"after {name}")
                self._pass("after", name, number)

        return call

    def _pass(self, side: Side, name: str, number: int) -> None:
        if self._point == KillPoint(number, side):
            self._note(f"{side} {name}")
            kill_self()

    def _note(self, where: str) -> None:
        if self._mark is not None:
            self._mark.set(where)
