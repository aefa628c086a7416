"""A server of a test: one process on a directory of its own, which may be killed and started again."""

from __future__ import annotations

import ctypes
import shutil
import signal
import subprocess
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True)


class ServerProcess:
    """The process and the directory of a server."""

    root: Path
    _process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Return the pid of its process."""
        assert self._process is not None
        return self._process.pid

    def kill(self) -> None:
        """Kill it with SIGKILL."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def remove(self) -> None:
        """Kill it and remove its data."""
        if self._process is not None and self._process.poll() is None:
            self.kill()
        shutil.rmtree(self.root, ignore_errors=True)


def die_with_parent() -> None:
    """Have the kernel kill this process when the one that started it dies."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
