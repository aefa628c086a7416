"""Where this process is: the machine's name, and what tells it from another machine of the same name.

A process number means something only where it was given: under one kernel since it started, in one namespace
of processes. Containers and cloned machines often share a name, and not that.
"""

from __future__ import annotations

import os
import socket
from functools import cache
from hashlib import blake2b
from pathlib import Path

_BOOT = Path("/proc/sys/kernel/random/boot_id")
_PROCESSES = Path("/proc/self/ns/pid")


def machine() -> str:
    """Return the machine's name, which runs are pinned to."""
    return socket.gethostname()


@cache
def host() -> str:
    """Return what sessions say of where they are: equal only where process numbers mean the same."""
    try:
        said = f"{_BOOT.read_text().strip()} {_PROCESSES.stat().st_ino}"
    except OSError:
        return machine()
    return f"{machine()}~{blake2b(said.encode(), digest_size=4).hexdigest()}"


def is_missed(where: str, pid: int) -> bool:
    """Tell whether a process was of this machine and namespace, and is not there any more.

    That there is none of its number proves that it is gone. That there is one proves nothing: it may be
    a later one, or a zombie.
    """
    if where != host() or where == machine() or pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False  # another user's
    return False
