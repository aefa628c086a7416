"""What a worker's death looked like: for whoever asks at three in the morning why a run lost a life."""

from __future__ import annotations

import os
import signal
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

_LAST_LINES, _LINE_CHARACTERS = 20, 500
_ON_PURPOSE = frozenset({signal.SIGTERM, signal.SIGINT})


class Evidence(Struct, frozen=True, kw_only=True):
    """How a process ended, and what it said last."""

    exit_code: int | None = None
    signal: str = ""
    is_out_of_memory: bool = False
    hung_seconds: float | None = None
    last_lines: tuple[str, ...] = ()

    @property
    def is_stop(self) -> bool:
        """Tell whether somebody told the process to stop: that costs no life."""
        return self.signal in {one.name for one in _ON_PURPOSE} and self.hung_seconds is None

    def __str__(self) -> str:
        if self.hung_seconds is not None:
            return f"its event loop was blocked for {self.hung_seconds:.0f} s, so it was killed"
        if self.is_out_of_memory:
            return "killed by the kernel: out of memory"
        if self.signal:
            return f"killed by {self.signal}"
        return f"exited with code {self.exit_code}" + ("" if self.exit_code else ", though nobody told it to")


class Tail:
    """The last lines that a process wrote."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=_LAST_LINES)
        self._rest = b""

    def feed(self, data: bytes) -> list[str]:
        """Take what was read; returns the lines that it completed."""
        *whole, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > 64 * _LINE_CHARACTERS:
            whole, self._rest = [*whole, self._rest], b""
        lines = [line.decode(errors="backslashreplace").rstrip("\r") for line in whole]
        self._lines.extend(line[:_LINE_CHARACTERS] for line in lines)
        return lines

    def end(self) -> list[str]:
        """Return the last line, if it was never ended."""
        return self.feed(b"\n") if self._rest else []

    @property
    def lines(self) -> tuple[str, ...]:
        """The last lines."""
        return tuple(self._lines)


def judge(
    status: os.waitid_result, *, ooms: int, hung_seconds: float | None, lines: Sequence[str]
) -> Evidence:
    """Say what a death looked like. `ooms` counts the kernel's own kills in its group since it began."""
    if status.si_code == os.CLD_EXITED:
        return Evidence(exit_code=status.si_status, hung_seconds=hung_seconds, last_lines=tuple(lines))
    name = f"signal {status.si_status}"
    with suppress(ValueError):
        name = signal.Signals(status.si_status).name
    is_kill = status.si_status == signal.SIGKILL and hung_seconds is None
    return Evidence(
        signal=name,
        is_out_of_memory=is_kill and ooms > 0,
        hung_seconds=hung_seconds,
        last_lines=tuple(lines),
    )


class MemoryGroup:
    """The kernel's count of the processes that it killed for want of memory, in a process's group."""

    def __init__(self, pid: int) -> None:
        self._file = _counter(pid)
        self._before = self._count()

    @property
    def kills(self) -> int:
        """How many it has killed since this was made."""
        return self._count() - self._before

    def _count(self) -> int:
        with suppress(OSError, ValueError):
            for line in self._file.read_text(encoding="ascii").splitlines() if self._file else ():
                name, _, value = line.partition(" ")
                if name == "oom_kill":
                    return int(value)
        return 0


def _counter(pid: int) -> Path | None:
    """Find the file that counts: `memory.events` of cgroup 2, `memory.oom_control` of cgroup 1."""
    with suppress(OSError, ValueError):
        for line in Path(f"/proc/{pid}/cgroup").read_text(encoding="utf-8").splitlines():
            _, controllers, path = line.split(":", 2)
            if "memory" in controllers.split(","):
                found = Path(f"/sys/fs/cgroup/memory{path}/memory.oom_control")
            elif not controllers:
                found = Path(f"/sys/fs/cgroup{path}/memory.events")
            else:
                continue
            if found.is_file():
                return found
    return None
