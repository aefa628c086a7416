"""A wall clock that can be set for some processes only: Python's own `time` is bent in them.

The clocks that count from the machine's start go on as they are, as they do when a machine's clock is set.
"""

from __future__ import annotations

import mmap
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

_BYTES = 8


class Clock:
    """A wall clock that can be set; as many processes as like may go by it."""

    def __init__(self, path: Path) -> None:
        if not path.exists():
            path.write_bytes(bytes(_BYTES))
        self.path = path
        with path.open("r+b") as file:
            self._page = mmap.mmap(file.fileno(), _BYTES)

    def set(self, seconds: float) -> None:
        """Let it be ahead of the true time by so much."""
        self._page[:_BYTES] = struct.pack("d", seconds)

    @property
    def ahead_seconds(self) -> float:
        """Return how far it is ahead."""
        (seconds,) = struct.unpack("d", self._page[:_BYTES])
        return float(seconds)

    @contextmanager
    def gone_by(self) -> Iterator[None]:
        """Let this process go by it."""
        true, true_ns = time.time, time.time_ns
        with (
            patch.object(time, "time", lambda: true() + self.ahead_seconds),
            patch.object(time, "time_ns", lambda: true_ns() + int(self.ahead_seconds * 1e9)),
        ):
            yield
