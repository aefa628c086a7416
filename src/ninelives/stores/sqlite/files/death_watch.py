"""Deaths, as they happen: the kernel notifies us when a session's lock file is closed.

Whatever ends a process closes its files, and inotify wakes the watchers of the directory, without polling.
The event comes a moment before the lock is dropped, so we check the lock several times. Without inotify
(another kernel, no instance left), the regular poll finds the dead session a second later.
"""

from __future__ import annotations

import ctypes
import os
import struct
import time
from pathlib import Path

from ninelives.stores.sqlite.files.session_locks import is_locked

_CLOSED_AFTER_WRITING = 0x00000008
_HEADER = struct.Struct("iIII")
# 50 ms in all: the kernel drops the lock just after the event;
# a live holder that closed a second descriptor never does.
_CHECKS, _PAUSE_SECONDS = 100, 0.0005


class DeathWatch:
    """Watches the session locks of one directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.fd = _watch(directory)

    def seen(self) -> bool:
        """Return whether a session's lock was dropped since the last call; wait for one about to be."""
        if self.fd < 0:
            return False
        return any(self._is_dropped(name) for name in sorted(self._closed()))

    def close(self) -> None:
        """Stop watching."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def _closed(self) -> set[str]:
        names: set[str] = set()
        try:
            while True:
                events, at = os.read(self.fd, 65536), 0
                while at < len(events):
                    _, _, _, size = _HEADER.unpack_from(events, at)
                    at += _HEADER.size
                    names.add(events[at : at + size].rstrip(b"\0").decode(errors="replace"))
                    at += size
        except BlockingIOError:
            return {name for name in names if name.endswith(".session")}

    def _is_dropped(self, name: str) -> bool:
        for _ in range(_CHECKS):
            try:
                if not is_locked(self._directory / name):
                    return True
            except OSError:
                return False  # its session has ended normally
            time.sleep(_PAUSE_SECONDS)
        return False


def _watch(directory: Path) -> int:
    """Return a descriptor that reports files closed in a directory; -1 if there is no inotify."""
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        fd: int = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        # Only closes after writing: checks open the files read-only and would wake all watchers in turn.
        if fd >= 0 and libc.inotify_add_watch(fd, os.fsencode(directory), _CLOSED_AFTER_WRITING) < 0:
            os.close(fd)
            return -1
    except (OSError, AttributeError):
        return -1
    return fd
