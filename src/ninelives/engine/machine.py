"""The identity of this machine: its name, and a hash that distinguishes machines of the same name.

A pid is meaningful only under one kernel since its boot, in one pid namespace. Containers and cloned machines
often share a host name, but not these two.
"""

from __future__ import annotations

import socket
from functools import cache
from hashlib import blake2b
from pathlib import Path

from ninelives.processes import is_dead, namespace

_BOOT = Path("/proc/sys/kernel/random/boot_id")


def machine() -> str:
    """Return the machine's name; `pin="host"` binds runs to it."""
    return socket.gethostname()


@cache
def host() -> str:
    """Return the host id that sessions record: equal only where pids are comparable.

    It is the bare name where boot id or pid namespace cannot be read; then no pid is compared.
    """
    try:
        boot = _BOOT.read_text().strip()
    except OSError:
        return machine()
    if not namespace():
        return machine()
    said = f"{boot} {namespace()}"
    return f"{machine()}~{blake2b(said.encode(), digest_size=4).hexdigest()}"


def is_missed(where: str, pid: int) -> bool:
    """Return whether a process belonged to this machine and pid namespace and is gone.

    No process with its pid, or only a zombie, proves that it is gone. A live process with its pid proves
    nothing: the pid may have been reused.
    """
    # A bare name is shared by containers, where the same pid is another process: it proves nothing.
    return where == host() and where != machine() and pid > 0 and is_dead(pid)
