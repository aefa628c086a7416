"""Find out which processes of this machine are alive.

A process that has ended stays in the kernel's table as a zombie until its parent reads its exit code; the
first process of a container often never does. A zombie executes nothing and holds nothing: it counts as
dead.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

_STATE, _THREADS = 0, 17
"""Indexes of fields in /proc/PID/stat, counted after the name."""


def is_dead(pid: int) -> bool:
    """Return whether there is no such process, or only a zombie."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        pass  # it exists and belongs to another user
    fields = stat_of(pid)
    return fields is not None and is_zombie(fields)


def stat_of(pid: int) -> list[bytes] | None:
    """Return the fields of /proc/PID/stat after pid and name; None when they cannot be read."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
        # The name stands in brackets and may itself have brackets and spaces: only the last one ends it.
        return stat[stat.rindex(b")") + 2 :].split()
    except (OSError, ValueError):
        return None


def is_zombie(fields: list[bytes]) -> bool:
    """Return whether a process has ended: its main thread has, and no other thread runs."""
    # A main thread that has ended shows as a zombie while other threads of the process still act.
    return fields[_STATE] in (b"Z", b"X") and int(fields[_THREADS]) < 2


@cache
def namespace() -> str:
    """Return the id of this process's PID namespace: pids compare only within one. Empty if unknown."""
    try:
        return str(Path("/proc/self/ns/pid").stat().st_ino)
    except OSError:
        return ""
