"""Child processes of the demo: each in its own session, read line by line, ending with its parent."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path


class DemoProcess:
    """A process that the demo started."""

    def __init__(self, process: asyncio.subprocess.Process, errors: Path) -> None:
        self._process, self._errors = process, errors
        self._reading: asyncio.Task[None] | None = None

    @classmethod
    async def start(
        cls, module: str, *args: str, errors: Path, on_line: Callable[[str], None], env: dict[str, str]
    ) -> DemoProcess:
        """Start a module; `on_line` gets each line that it prints, at once."""
        with errors.open("ab") as sink:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", module, *args),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=sink,
                env={**os.environ, **env},
                start_new_session=True,  # Ctrl-C must reach only us; we end the children
            )
        child = cls(process, errors)
        child._reading = asyncio.create_task(child._read(on_line))
        return child

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether it is still running, as far as the event loop knows."""
        return self._process.returncode is None

    def kill(self) -> None:
        """Send SIGKILL."""
        with suppress(ProcessLookupError):
            self._process.kill()

    async def gone(self) -> None:
        """Wait until it has ended and its output is read."""
        await self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()
        if self._reading is not None:
            await self._reading

    def last_errors(self) -> str:
        """Return the end of what it wrote to standard error."""
        return self._errors.read_text(errors="replace").strip()[-1000:]

    async def _read(self, on_line: Callable[[str], None]) -> None:
        if self._process.stdout is not None:
            async for line in self._process.stdout:
                on_line(line.decode().strip())


def end_with_parent() -> None:
    """Exit when the parent ends: its end closes the pipe to our standard input."""

    def watch() -> None:
        while os.read(0, 1024):
            pass
        os._exit(0)

    threading.Thread(target=watch, daemon=True).start()
