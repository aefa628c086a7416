"""Which processes of this machine live.

A process that has ended stays in the kernel's table, as a zombie, until its parent asks for its exit code;
the first process of a container often never asks. A zombie executes nothing and holds nothing: it is dead.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

_STATE, _THREADS = 0, 17
"""Places in /proc/PID/stat, counted after the name."""


def is_dead(pid: int) -> bool:
    """Tell whether there is no such process, or only a zombie."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        pass  # another user's
    fields = stat_of(pid)
    return fields is not None and is_zombie(fields)


def stat_of(pid: int) -> list[bytes] | None:
    """Return what /proc says of a process, without its number and name; None when it says nothing."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
        return stat[stat.rindex(b")") + 2 :].split()
    except (OSError, ValueError):
        return None


def is_zombie(fields: list[bytes]) -> bool:
    """Tell whether a process has ended; one whose first thread has ended may have others that go on."""
    return fields[_STATE] in (b"Z", b"X") and int(fields[_THREADS]) < 2


@cache
def namespace() -> str:
    """Name the namespace in which process numbers mean the same as here; empty where it has no name."""
    try:
        return str(Path("/proc/self/ns/pid").stat().st_ino)
    except OSError:
        return ""
