"""Collect the evidence of a worker's death: signal, exit code, out of memory, last lines of output."""

from __future__ import annotations

import os
import signal
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from ninelives.core.model.session import HUNG, Evidence

_LAST_LINES, _LINE_CHARACTERS = 20, 500
_ON_PURPOSE = (signal.SIGTERM, signal.SIGINT)


def judge(
    status: os.waitid_result, *, ooms: int, hung_seconds: float | None, lines: Sequence[str]
) -> Evidence:
    """Return the evidence of a death. `ooms` counts the OOM killer's kills in its cgroup since its start.

    `is_gone` stays false: the caller sets it once it has seen that no descendant is left.
    """
    is_exit = status.si_code == os.CLD_EXITED
    number = None if is_exit else status.si_status
    # The counter is of the whole cgroup: only with a SIGKILL
    # that we did not send is this one likely the victim.
    is_oom = number == signal.SIGKILL and hung_seconds is None and ooms > 0
    if hung_seconds is not None:
        note = f"{HUNG} for {hung_seconds:.0f} s, so it was killed"
    elif is_oom:
        note = "killed by the kernel: out of memory"
    elif number is not None:
        note = f"killed by {_name(number)}"
    else:
        note = f"exited with code {status.si_status}" + (
            "" if status.si_status else ", though no stop was requested"
        )
    return Evidence(
        signal=number,
        exit_code=status.si_status if is_exit else None,
        is_oom=is_oom,
        note=note,
        log=tuple(lines),
    )


def is_stop(evidence: Evidence) -> bool:
    """Return whether the process died of a stop signal: that costs the run no life."""
    return evidence.signal in _ON_PURPOSE


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


class LastLines:
    """Splits the output of a process into lines, and keeps the last ones."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=_LAST_LINES)
        self._rest = b""

    def feed(self, data: bytes) -> list[str]:
        """Add output; return the lines that it completed."""
        *whole, self._rest = (self._rest + data).split(b"\n")
        # A program that writes no newline must not fill the supervisor's memory.
        if len(self._rest) > 64 * _LINE_CHARACTERS:
            whole, self._rest = [*whole, self._rest], b""
        lines = [line.decode(errors="backslashreplace").rstrip("\r") for line in whole]
        self._lines.extend(line[:_LINE_CHARACTERS] for line in lines)
        return lines

    def end(self) -> list[str]:
        """Return the last line if it has no newline."""
        return self.feed(b"\n") if self._rest else []

    @property
    def lines(self) -> tuple[str, ...]:
        """The last lines."""
        return tuple(self._lines)


class MemoryGroup:
    """The kernel's counter of OOM kills in a process's cgroup."""

    def __init__(self, pid: int) -> None:
        self._file = _counter(pid)
        self._before = self._count()

    @property
    def kills(self) -> int:
        """The number of OOM kills since this object was made."""
        return self._count() - self._before

    def _count(self) -> int:
        with suppress(OSError, ValueError):
            for line in self._file.read_text(encoding="ascii").splitlines() if self._file else ():
                name, _, value = line.partition(" ")
                if name == "oom_kill":
                    return int(value)
        return 0


def _counter(pid: int) -> Path | None:
    """Find the counter's file: `memory.events` of cgroup v2, `memory.oom_control` of cgroup v1."""
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
