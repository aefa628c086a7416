"""Find what a start may have left running: its process, child processes, and tasks or threads here.

A cancelled task or a dropped lock proves nothing about the threads and child processes that a body started.
So we search for them before we accept that a start can no longer take effect. We see only this machine since
its boot; about other machines, only the store and their supervisors have information. See
docs/decisions/0017.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from msgspec import Struct

from ninelives.core.clock import Clock, boot_reading
from ninelives.core.journal.settlement import StartBody
from ninelives.core.model.session import Fate, Session
from ninelives.engine.context import WatchedFrame
from ninelives.engine.machine import host, machine
from ninelives.processes import is_zombie, stat_of

_TICK_MS = 1000 / os.sysconf("SC_CLK_TCK")
_FIRST = 1  # orphaned processes get this parent, unless there is a nearer subreaper


class _Process(Struct, frozen=True):
    pid: int
    parent: int
    sid: int
    began_ms: float


def own_sid() -> int:
    """Return the POSIX session id, which this process normally shares with its child processes."""
    return os.getsid(0)


def fate_of(session: Session | None, start: StartBody, clock: Clock) -> tuple[Fate, bool]:
    """Return the fate of a start's process and all that it started, and whether the time limit bounds it.

    A dropped lock or a missing pid proves that a session without a supervisor is gone, but nothing about its
    child processes. On this machine we search for those; on others we know only the action's time limit.
    """
    if session is None or session.fate is Fate.LIVES:
        return (Fate.UNKNOWN if session is None else Fate.LIVES), start.b
    is_of_this_boot = start.boot == boot_reading(clock)[0]
    if not is_of_this_boot or session.host != host() or session.host == machine():
        is_process_only = session.fate is Fate.GONE and not session.keeper and is_of_this_boot
        return (Fate.UNKNOWN, True) if is_process_only else (session.fate, start.b)
    if session.fate is Fate.UNKNOWN and _is_there(session.pid, start):
        return Fate.LIVES, start.b
    if session.keeper:
        return session.fate, start.b
    if start.sid is None:  # taken over from another run: the child processes are unknown
        return Fate.UNKNOWN, True
    return (Fate.LIVES if _has_orphans(session.pid, start) else Fate.GONE), start.b


def is_at_work(frame: WatchedFrame) -> bool:
    """Return whether anything that a body of this process started may still be running."""
    if frame.at_work:
        return True
    us, since_ms = os.getpid(), frame.began_ms - _TICK_MS
    return any(one.parent == us and one.began_ms >= since_ms for one in _processes())


def _is_there(pid: int, start: StartBody) -> bool:
    """Return whether the process of a start is alive, even if stopped; a reused pid does not count."""
    found = _read(pid)
    return found is not None and found.began_ms <= start.boot_ms + _TICK_MS


def _has_orphans(pid: int, start: StartBody) -> bool:
    """Return whether a live process may be one that the start's process started since and left behind."""
    everyone = {one.pid: one for one in _processes()}

    def is_left(one: _Process) -> bool:
        if one.sid != start.sid or one.began_ms < start.boot_ms - _TICK_MS or one.pid == os.getpid():
            return False
        above = everyone.get(one.parent)
        # An orphan's parent is the first process, or a subreaper outside its POSIX session.
        return one.parent in (_FIRST, pid) or above is None or above.sid != one.sid

    return any(is_left(one) for one in everyone.values())


def _processes() -> Iterator[_Process]:
    for name in os.listdir("/proc"):
        if name.isdigit():
            found = _read(int(name))
            if found is not None:
                yield found


def _read(pid: int) -> _Process | None:
    """Return a process; None when it is gone. If only its main thread ended, others may still run."""
    fields = stat_of(pid)
    if fields is None or is_zombie(fields):
        return None
    return _Process(pid, int(fields[1]), int(fields[3]), int(fields[19]) * _TICK_MS)
