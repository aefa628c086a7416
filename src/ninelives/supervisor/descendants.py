"""Find and kill the descendants of a dead worker, before its session is declared dead.

A step's body may have started `git push`, which continues after the worker's death. A descendant is found in
three ways: it is in the worker's process group; it carries the worker's mark in its environment; or it lost
its parent, was reparented to us as the nearest subreaper, and only a worker can have started it (`Ancestry`).

If we die here: the descendants still carry their marks, and the next supervisor of this store finds them
(`sweep_orphaned_workers`).
"""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path

from msgspec import Struct

from ninelives.processes import is_zombie, namespace, stat_of
from ninelives.supervisor.protocol import SUPERVISOR_MARK, WORKER_MARK

_PR_SET_CHILD_SUBREAPER = 36
_SCAN_MS = 1_000


class Process(Struct, frozen=True):
    """A running process, read from /proc."""

    pid: int
    parent: int
    began: int
    marks: dict[str, str]


def become_subreaper() -> None:
    """Make the kernel reparent orphaned descendants to this process."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "PR_SET_CHILD_SUBREAPER")


def processes() -> Iterator[Process]:
    """Yield all running processes, without zombies."""
    for name in os.listdir("/proc"):
        if name.isdigit():
            found = read_process(int(name))
            if found is not None:
                yield found


def read_process(pid: int) -> Process | None:
    """Return a process, or None if it is gone or a zombie."""
    fields = stat_of(pid)
    if fields is None or is_zombie(fields):
        return None
    environ = b""
    with suppress(OSError):  # another user's process, or it just ended: no marks
        environ = Path(f"/proc/{pid}/environ").read_bytes()
    return Process(pid, int(fields[1]), int(fields[19]), _marks(environ))


def _marks(environ: bytes) -> dict[str, str]:
    found = {}
    for entry in environ.split(b"\0"):
        name, _, value = entry.partition(b"=")
        if name in (SUPERVISOR_MARK.encode(), WORKER_MARK.encode()):
            found[name.decode()] = value.decode(errors="replace")
    return found


def supervisor_mark(pid: int, store: str) -> str:
    """Return the mark of a supervisor process: unique even if its pid is reused, with the store it serves.

    The start time distinguishes it from a later process with the same pid, the namespace from one in another
    container: the host sees the processes of containers, but under other pids.
    """
    found = read_process(pid)
    served = blake2b(store.encode(), digest_size=8).hexdigest()
    return f"{pid}-{found.began if found else 0}-{_boot()}-{served}-{namespace()}"


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()[:8]


def kill_group(group: int) -> None:
    """Kill a process group. Its leader must not be reaped yet, so that its number cannot be reused."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


def is_group(group: int) -> bool:
    """Return whether a process group has running members, as far as we can see."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    stats = [stat_of(int(name)) for name in os.listdir("/proc") if name.isdigit()]
    members = [fields for fields in stats if fields is not None and int(fields[2]) == group]
    # No member is visible although the group exists: they may be hidden from us, so assume that they live.
    return not members or not all(is_zombie(fields) for fields in members)


class Ancestry:
    """Attributes orphaned processes without our environment marks to the worker that started them.

    The kernel reparents orphans to the nearest subreaper among their ancestors: to us. If we started without
    children, such an orphan descends from one of our workers. But as the first process of a container we get
    all orphans, and a shell that replaced itself by us (`exec`) left us its other children and their
    descendants. In these two cases a process belongs to a worker only if it was seen below that worker while
    the worker lived. We scan for that every second, and before we kill a worker ourselves.
    """

    def __init__(self) -> None:
        """Check for foreign children; call this before the first worker is started."""
        us = os.getpid()
        self._has_strangers = us == 1 or any(one.parent == us for one in processes())
        self._seen: dict[tuple[int, int], str] = {}
        self._scanned_ms: int | None = None

    def scan(self, workers: Mapping[int, str], now_ms: int, *, is_urgent: bool = False) -> None:
        """Remember the descendants of the workers (pid → mark), at most once a second unless urgent."""
        is_early = self._scanned_ms is not None and now_ms - self._scanned_ms < _SCAN_MS
        if not self._has_strangers or (is_early and not is_urgent):
            return
        self._scanned_ms = now_ms
        running = {one.pid: one for one in processes()}
        found = {}
        for one in running.values():
            # What was seen below a worker stays its own, even when its parent has died and it came to us.
            mark = _worker_above(one, running, workers) or self._seen.get((one.pid, one.began))
            if mark is not None and one.pid not in workers:
                found[one.pid, one.began] = mark
        # Replaced, not added to: pids of ended processes must not stay and name strangers later.
        self._seen = found

    def may_be_of(self, one: Process, mark: str) -> bool:
        """Return whether an unmarked process that was reparented to us must end with that worker."""
        return not self._has_strangers or self._seen.get((one.pid, one.began)) == mark


def _worker_above(one: Process, running: Mapping[int, Process], workers: Mapping[int, str]) -> str | None:
    above: Process | None = one
    while above is not None:
        if above.pid in workers:
            return workers[above.pid]
        above = running.get(above.parent)
    return None


def sweep(
    worker: str,
    others: Collection[str],
    spared: Collection[int],
    may_be_of: Callable[[Process, str], bool],
) -> list[int]:
    """Kill the descendants of a dead worker; return those still found: call again until there are none.

    `worker` is its mark and `others` the marks of the other workers. Processes in `spared` are not touched.
    `may_be_of` decides whether an unmarked process that was reparented to us ends with this worker.
    """
    us = os.getpid()

    def is_left(one: Process) -> bool:
        mark = one.marks.get(WORKER_MARK)
        return mark == worker or (one.parent == us and mark not in others and may_be_of(one, worker))

    return _kill(is_left, spared)


def sweep_descendants(worker: str) -> list[int]:
    """Kill the descendants of this worker process, but not itself; return those still found."""
    us = os.getpid()
    return _kill(lambda one: one.marks.get(WORKER_MARK) == worker or one.parent == us, {us})


def is_left_of(supervisor: int) -> bool:
    """Return whether any process carries the mark of a supervisor with this pid, for any store.

    A store may have several URLs, so a sweep under one of them does not prove that nothing is left.
    A mark from another namespace belongs to another supervisor.
    """

    def may_be_of(mark: str) -> bool:
        parts = mark.split("-")
        return parts[0] == str(supervisor) and parts[4:] in ([], [namespace()])

    return any(may_be_of(one.marks[SUPERVISOR_MARK]) for one in processes() if SUPERVISOR_MARK in one.marks)


def sweep_orphaned_workers(store: str) -> list[int]:
    """Kill the workers, with all descendants, of dead supervisors of this store on this machine."""
    ours = supervisor_mark(os.getpid(), store)
    alive: dict[str, bool] = {}

    def is_orphaned(one: Process) -> bool:
        mark = one.marks.get(SUPERVISOR_MARK)
        if mark is None or mark.split("-")[2:] != ours.split("-")[2:]:
            return False  # another store or container, or another boot (a container that was restored)
        if mark not in alive:
            pid = mark.partition("-")[0]
            # The whole mark: a later process with the same pid began at another time.
            alive[mark] = pid.isdigit() and supervisor_mark(int(pid), store) == mark
        return not alive[mark]

    return _kill(is_orphaned, {os.getpid()})


def _kill(is_left: Callable[[Process], bool], spared: Collection[int]) -> list[int]:
    # One listing for all rounds: a process that is started meanwhile is found by the caller's next sweep.
    running = list(processes())
    left = {one.pid for one in running if one.pid not in spared and is_left(one)}
    grown = True
    while grown:  # their children too, even if these cleared their environment
        children = {one.pid for one in running if one.parent in left and one.pid not in spared}
        grown = not children <= left
        left |= children
    for pid in left:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    return sorted(left)
