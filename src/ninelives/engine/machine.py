"""Where this process is: the machine's name, and what tells it from another machine of the same name.

A process number means something only where it was given: under one kernel since it started, in one namespace
of processes. Containers and cloned machines often share a name, and not that.
"""

from __future__ import annotations

import socket
from functools import cache
from hashlib import blake2b
from pathlib import Path

from ninelives.processes import is_dead, namespace

_BOOT = Path("/proc/sys/kernel/random/boot_id")


def machine() -> str:
    """Return the machine's name, which runs are pinned to."""
    return socket.gethostname()


@cache
def host() -> str:
    """Return what sessions say of where they are: equal only where process numbers mean the same."""
    try:
        boot = _BOOT.read_text().strip()
    except OSError:
        return machine()
    if not namespace():
        return machine()
    said = f"{boot} {namespace()}"
    return f"{machine()}~{blake2b(said.encode(), digest_size=4).hexdigest()}"


def is_missed(where: str, pid: int) -> bool:
    """Tell whether a process was of this machine and namespace, and is not there any more.

    That there is none of its number, or only a zombie, proves that it is gone. That there is one proves
    nothing: it may be a later one.
    """
    return where == host() and where != machine() and pid > 0 and is_dead(pid)
