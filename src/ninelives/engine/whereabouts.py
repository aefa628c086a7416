"""Where this process is: the machine's name, and what tells it from another machine of the same name.

A process number means something only where it was given: under one kernel since it started, in one namespace
of processes. Containers and cloned machines often share a name, and not that.
"""

from __future__ import annotations

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
