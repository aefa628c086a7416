"""Real processes for tests: each plays a role of `roles`, and talks in lines over its pipes."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Self

PATIENCE_SECONDS = 30.0
ROOT = Path(__file__).parents[2]


class Child:
    """A child process; nothing here waits for ever."""

    def __init__(self, role: str, path: Path, *words: object, prefix: tuple[str, ...] = ()) -> None:
        command = [*prefix, sys.executable, "-m", "tests.integration.roles", role, str(path)]
        self._process = subprocess.Popen(
            [*command, *map(str, words)], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
        )
        self.pid = self._process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()

    def read(self, timeout_seconds: float = PATIENCE_SECONDS) -> str:
        """Return the next line that it says; empty at its end."""
        assert self._process.stdout is not None
        pipe, line, deadline = self._process.stdout.fileno(), b"", time.monotonic() + timeout_seconds
        while not line.endswith(b"\n"):
            ready, _, _ = select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"process {self.pid} said only {line!r}"
            byte = os.read(pipe, 1)
            if not byte:
                break
            line += byte
        return line.decode().rstrip("\n")

    def tell(self, line: str = "go") -> None:
        """Say something to it."""
        assert self._process.stdin is not None
        os.write(self._process.stdin.fileno(), f"{line}\n".encode())

    def ask(self, line: str = "go") -> str:
        """Say something to it and return what it answers."""
        self.tell(line)
        return self.read()

    def kill(self) -> None:
        """Kill -9 it and wait until it is gone."""
        self._process.kill()
        self._process.wait(PATIENCE_SECONDS)

    def stop(self) -> None:
        """Stop it, as SIGSTOP does, and wait until it stands still."""
        os.kill(self.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self) -> None:
        """Let it go on after `stop`."""
        os.kill(self.pid, signal.SIGCONT)

    def wait(self) -> int:
        """Wait for its end and return its exit code."""
        return self._process.wait(PATIENCE_SECONDS)
