"""Real processes with deadlines: fork, wait, kill. Nothing here can hang, and nothing outlives its parent.

Only processes that were forked here are ever signalled, by their own pidfd or id.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress

_PR_SET_PDEATHSIG = 1
_CLONE_NEWNS = 0x00020000


class Hung(AssertionError):
    """A child did not do in time what it was to do."""


def fork(work: Callable[[], object]) -> int:
    """Run something in a forked child, which dies with us; return its id. It exits with 1 if it raises."""
    parent = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        die_with_parent(parent)
        work()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        with suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def die_with_parent(parent: int) -> None:
    """Let the kernel kill this process when its parent ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def private_mounts() -> None:
    """Give this process mounts of its own: they go when it goes, however it goes.

    Raises OSError where that is not allowed.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWNS) != 0:
        raise OSError(ctypes.get_errno(), "unshare: " + os.strerror(ctypes.get_errno()))
    recursive_private = 0x4000 | (1 << 18)
    if libc.mount(b"none", b"/", None, recursive_private, None) != 0:
        raise OSError(ctypes.get_errno(), "mount: " + os.strerror(ctypes.get_errno()))


def ended(pid: int, timeout_seconds: float) -> bool:
    """Wait until a child has ended, but do not collect it."""
    fd = os.pidfd_open(pid)
    try:
        return bool(select.select([fd], [], [], max(0.0, timeout_seconds))[0])
    finally:
        os.close(fd)


def collect(pid: int, deadline_seconds: float = 30.0) -> int:
    """Return a child's exit code, negative for a signal.

    Raises Hung, after killing it, when it does not end in time.
    """
    if not ended(pid, deadline_seconds):
        kill(pid)
        raise Hung(f"child {pid} did not end within {deadline_seconds:g} s and was killed")
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def kill(pid: int) -> int:
    """Kill -9 a child and collect it."""
    os.kill(pid, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def stop(pid: int) -> None:
    """Stop a child and wait until it stands still; a child that has ended is left alone."""
    os.kill(pid, signal.SIGSTOP)
    os.waitid(os.P_PID, pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)


def resume(pid: int) -> None:
    """Let a stopped child go on."""
    os.kill(pid, signal.SIGCONT)


def read_byte(fd: int, timeout_seconds: float = 30.0) -> bytes:
    """Wait for one byte from a pipe; empty at its end.

    Raises Hung when nothing comes in time.
    """
    if not select.select([fd], [], [], timeout_seconds)[0]:
        raise Hung(f"nothing was said within {timeout_seconds:g} s")
    return os.read(fd, 1)


def until(condition: Callable[[], bool], timeout_seconds: float = 30.0) -> None:
    """Wait for a condition that nobody announces (a file that grows), looking every millisecond.

    Raises Hung when it does not come true in time.
    """
    deadline = time.monotonic() + timeout_seconds
    while not condition():
        if time.monotonic() > deadline:
            raise Hung(f"it did not come true within {timeout_seconds:g} s")
        select.select([], [], [], 0.001)
