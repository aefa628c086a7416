"""Which sessions live: one locked file per session beside the database.

A session's process holds an flock on its file. The kernel drops it when the process ends, however it ends,
and the next process that checks sees it at once. The descriptor is closed in forked children; otherwise a
child would keep its dead parent's session alive. A missing file proves nothing: then the lease decides.
"""

from __future__ import annotations

import fcntl
import os
from hashlib import blake2b
from pathlib import Path


def is_locked(path: Path) -> bool:
    """Return whether a process holds a session's lock file. Raises OSError, above all if there is none."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)  # read-only: wakes no DeathWatch
    try:
        # Shared: two processes that check at once must not take each other for the holder.
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


class SessionLocks:
    """The lock files in one directory, and those that this process holds."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._held: dict[str, int] = {}

    def hold(self, session: str) -> None:
        """Take the lock of a session of this process.

        Raises BlockingIOError when another process holds it.
        """
        # Open to write: only then does closing it, at our death, wake the DeathWatch of others.
        fd = os.open(self._path(session), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            raise
        self._held[session] = fd

    def is_dropped(self, session: str) -> bool:
        """Return whether the holder's death is proved: its file exists and no process holds it."""
        return self.is_held(session) is False

    def is_held(self, session: str) -> bool | None:
        """Return whether another process holds the lock; None if it is ours, or if there is no file."""
        # A check opens a second descriptor, and to flock that is another holder: our lock would seem foreign.
        if session in self._held:
            return None
        try:
            return is_locked(self._path(session))
        except FileNotFoundError:
            return None

    def discard(self, session: str) -> None:
        """Drop the lock if it is ours, and remove the file."""
        fd = self._held.pop(session, None)
        # Unlink while the lock is held: a file that is found
        # unlocked counts as a death, and this is a normal end.
        self._path(session).unlink(missing_ok=True)
        if fd is not None:
            os.close(fd)

    def close(self) -> None:
        """Drop all locks: the sessions of this store object are over."""
        for fd in self._held.values():
            os.close(fd)
        self._held.clear()

    def _path(self, session: str) -> Path:
        # Ids never become file names: a session may be called "../../etc".
        return self._directory / f"{blake2b(session.encode(), digest_size=16).hexdigest()}.session"
