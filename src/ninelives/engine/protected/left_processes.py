"""What a start may have left at work: its process, the processes that it began, and in this one its helpers.

That a task was cancelled, or a lock dropped, says nothing of the threads and child processes that a body had
begun. So before anybody believes that a start can no longer take effect, we look for them. What is looked at
here is this machine, since it was booted; of others, only the store and their supervisors can say anything.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from msgspec import Struct

from ninelives.core.clock import Clock, witness
from ninelives.core.journal.settlement import StartBody
from ninelives.core.model.session import Fate, Session
from ninelives.engine.context import WatchedFrame
from ninelives.engine.machine import host, machine
from ninelives.processes import is_zombie, stat_of

_TICK_MS = 1000 / os.sysconf("SC_CLK_TCK")
_FIRST = 1  # the process that is handed those who have lost their parent, unless there is a nearer one


class _Process(Struct, frozen=True):
    pid: int
    parent: int
    sid: int
    began_ms: float


def own_sid() -> int:
    """Return the number that this process and, as a rule, its child processes have in common."""
    return os.getsid(0)


def fate_of(session: Session | None, start: StartBody, clock: Clock) -> tuple[Fate, bool]:
    """Return what is known of a start's process and of all that it began; and whether its limit ends it.

    A session without a supervisor is known to be gone by its lock, or by its process's number: that proves
    nothing of its child processes. Those of this machine we look for; of others we know only their limit.
    """
    if session is None or session.fate is Fate.LIVES:
        return (Fate.UNKNOWN if session is None else Fate.LIVES), start.b
    is_of_this_boot = start.boot == witness(clock)[0]
    if not is_of_this_boot or session.host != host() or session.host == machine():
        is_process_only = session.fate is Fate.GONE and not session.keeper and is_of_this_boot
        return (Fate.UNKNOWN, True) if is_process_only else (session.fate, start.b)
    if session.fate is Fate.UNKNOWN and _is_there(session.pid, start):
        return Fate.LIVES, start.b
    if session.keeper:
        return session.fate, start.b
    if start.sid is None:  # taken over from another run: what its process began is not known
        return Fate.UNKNOWN, True
    return (Fate.LIVES if _has_orphans(session.pid, start) else Fate.GONE), start.b


def is_at_work(frame: WatchedFrame) -> bool:
    """Tell whether anything that a body of this process began may still be at work."""
    if frame.at_work:
        return True
    us, since_ms = os.getpid(), frame.began_ms - _TICK_MS
    return any(one.parent == us and one.began_ms >= since_ms for one in _processes())


def _is_there(pid: int, start: StartBody) -> bool:
    """Tell whether the process of a start lives, be it stopped; a later one of its number is another."""
    found = _read(pid)
    return found is not None and found.began_ms <= start.boot_ms + _TICK_MS


def _has_orphans(pid: int, start: StartBody) -> bool:
    """Tell whether a process lives that the start's process may have begun since, and left behind."""
    everyone = {one.pid: one for one in _processes()}

    def is_left(one: _Process) -> bool:
        if one.sid != start.sid or one.began_ms < start.boot_ms - _TICK_MS or one.pid == os.getpid():
            return False
        above = everyone.get(one.parent)
        # Who was left behind was handed to the first process, or to another that is not of its own kind.
        return one.parent in (_FIRST, pid) or above is None or above.sid != one.sid

    return any(is_left(one) for one in everyone.values())


def _processes() -> Iterator[_Process]:
    for name in os.listdir("/proc"):
        if name.isdigit():
            found = _read(int(name))
            if found is not None:
                yield found


def _read(pid: int) -> _Process | None:
    """Return a process; None when it is gone. One whose first thread has ended may have others at work."""
    fields = stat_of(pid)
    if fields is None or is_zombie(fields):
        return None
    return _Process(pid, int(fields[1]), int(fields[3]), int(fields[19]) * _TICK_MS)
