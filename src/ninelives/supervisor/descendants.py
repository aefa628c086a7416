"""What a dead worker has left behind, found and killed before its session is declared dead.

A body may have started `git push`, which goes on when the worker is gone. It is found in three ways: it is
of the worker's process group; it carries the worker's mark in its environment; or it has lost its parent
and was handed to us, the nearest subreaper, and nobody but a worker can have started it (see `kin`).

If we die here: the strays are still marked, and whoever comes next (`sweep_orphaned_fleets`) finds them.
"""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path

from msgspec import Struct

from ninelives.processes import is_dead, is_zombie, namespace, stat_of
from ninelives.supervisor.protocol import KEEPER, WARD

_PR_SET_CHILD_SUBREAPER = 36


class Process(Struct, frozen=True):
    """A living process, as /proc shows it."""

    pid: int
    parent: int
    began: int
    marks: dict[str, str]


def become_subreaper() -> None:
    """Have every descendant that loses its parent handed to this process."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "PR_SET_CHILD_SUBREAPER")


def processes() -> Iterator[Process]:
    """Yield the processes that live, without zombies."""
    for name in os.listdir("/proc"):
        if name.isdigit():
            found = look_at(int(name))
            if found is not None:
                yield found


def look_at(pid: int) -> Process | None:
    """Return a process, or None if it is gone or a zombie."""
    fields = stat_of(pid)
    if fields is None or is_zombie(fields):
        return None
    environ = b""
    with suppress(OSError):  # another user's, or gone meanwhile: without marks
        environ = Path(f"/proc/{pid}/environ").read_bytes()
    return Process(pid, int(fields[1]), int(fields[19]), _marks(environ))


def _marks(environ: bytes) -> dict[str, str]:
    found = {}
    for entry in environ.split(b"\0"):
        name, _, value = entry.partition(b"=")
        if name in (KEEPER.encode(), WARD.encode()):
            found[name.decode()] = value.decode(errors="replace")
    return found


def name_keeper(pid: int, store: str) -> str:
    """Name a process so that no other one with its number is taken for it, and the store that it serves.

    A later process is told apart by when it began, one in another container by its namespace: from the host
    the processes of containers can be seen, but not under the numbers that they have there.
    """
    found = look_at(pid)
    served = blake2b(store.encode(), digest_size=8).hexdigest()
    return f"{pid}-{found.began if found else 0}-{_boot()}-{served}-{namespace()}"


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()[:8]


def kill_group(group: int) -> None:
    """Kill a process group. Its leader must not have been reaped: then the number cannot be another's."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


def is_gone(pid: int) -> bool:
    """Tell whether a process has ended; one that /proc hides from us, being another user's, has not."""
    return is_dead(pid)


def is_group(group: int) -> bool:
    """Tell whether a process group has anybody in it that lives, as far as we can see."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    stats = [stat_of(int(name)) for name in os.listdir("/proc") if name.isdigit()]
    members = [fields for fields in stats if fields is not None and int(fields[2]) == group]
    return not members or not all(is_zombie(fields) for fields in members)


def sweep(
    ward: str, wards: Collection[str], workers: Collection[int], is_kin: Callable[[Process, str], bool]
) -> list[int]:
    """Kill what is left of a dead worker; returns who was still there: call again until it is nobody.

    `wards` are the marks of the workers that live, `workers` the processes that are not to be touched, and
    `is_kin` says whether one without their marks that was handed to us ends with this worker.
    """
    us = os.getpid()

    def is_left(one: Process) -> bool:
        mark = one.marks.get(WARD)
        return mark == ward or (one.parent == us and mark not in wards and is_kin(one, ward))

    return _kill(is_left, workers)


def sweep_descendants(ward: str) -> list[int]:
    """Kill what this worker itself has started, but not itself; returns who was still there."""
    us = os.getpid()
    return _kill(lambda one: one.marks.get(WARD) == ward or one.parent == us, {us})


def is_left_of(supervisor: int) -> bool:
    """Tell whether anything carries the mark of a supervisor that had this number, whatever store it served.

    A store may be called by several names, so what was swept under one of them proves nothing by itself.
    A mark from another namespace names another supervisor.
    """

    def may_be_of(mark: str) -> bool:
        parts = mark.split("-")
        return parts[0] == str(supervisor) and parts[4:] in ([], [namespace()])

    return any(may_be_of(one.marks[KEEPER]) for one in processes() if KEEPER in one.marks)


def sweep_orphaned_fleets(store: str) -> list[int]:
    """Kill the workers, and all of theirs, whose supervisor on this machine served this store and is gone."""
    ours = name_keeper(os.getpid(), store)
    alive: dict[str, bool] = {}

    def is_orphaned(one: Process) -> bool:
        keeper = one.marks.get(KEEPER)
        if keeper is None or keeper.split("-")[2:] != ours.split("-")[2:]:
            return False  # of another store or container, or from another boot: a container that was restored
        if keeper not in alive:
            number = keeper.partition("-")[0]
            alive[keeper] = number.isdigit() and name_keeper(int(number), store) == keeper
        return not alive[keeper]

    return _kill(is_orphaned, {os.getpid()})


def _kill(is_left: Callable[[Process], bool], spared: Collection[int]) -> list[int]:
    everyone = list(processes())
    left = {one.pid for one in everyone if one.pid not in spared and is_left(one)}
    grown = True
    while grown:  # what they have started goes with them, whatever it made of its environment
        children = {one.pid for one in everyone if one.parent in left and one.pid not in spared}
        grown = not children <= left
        left |= children
    for pid in left:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    return sorted(left)
