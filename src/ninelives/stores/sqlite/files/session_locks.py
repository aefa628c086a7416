"""Who lives: one locked file per session beside the database.

A session's process holds an flock on its file; the kernel drops it when the process ends, however it
ends, and whoever looks next knows at once. The descriptor is closed in forked children, or a child
would keep its dead parent's session alive. A file that is missing proves nothing: then the lease decides.
"""

from __future__ import annotations

import fcntl
import os
from hashlib import blake2b
from pathlib import Path


class SessionLocks:
    """The lock files in one directory, and those that this process holds."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._held: dict[str, int] = {}

    def hold(self, session: str) -> None:
        """Take the lock of a session of this process.

        Raises BlockingIOError when another process holds it.
        """
        fd = os.open(self._path(session), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            raise
        self._held[session] = fd

    def is_dropped(self, session: str) -> bool:
        """Tell whether the holder's death is proved: its file is there and nobody holds it."""
        return self.is_held(session) is False

    def is_held(self, session: str) -> bool | None:
        """Tell whether another process holds the lock; None when it is ours, or no file can tell."""
        if session in self._held:
            return None
        try:
            fd = os.open(self._path(session), os.O_RDONLY | os.O_CLOEXEC)  # closing it tells no watcher
        except FileNotFoundError:
            return None
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(fd)
        return False

    def discard(self, session: str) -> None:
        """Drop the lock if it is ours, and remove the file."""
        fd = self._held.pop(session, None)
        self._path(session).unlink(missing_ok=True)
        if fd is not None:
            os.close(fd)

    def close(self) -> None:
        """Let go of all locks: the sessions of this store object are over."""
        for fd in self._held.values():
            os.close(fd)
        self._held.clear()

    def _path(self, session: str) -> Path:
        # Ids never become paths: a session may be called "../../etc".
        return self._directory / f"{blake2b(session.encode(), digest_size=16).hexdigest()}.session"
