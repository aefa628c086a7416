"""Child processes: each in a session of its own, told line by line, and gone when its parent is gone."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path


class DemoProcess:
    """A process that we started."""

    def __init__(self, process: asyncio.subprocess.Process, errors: Path) -> None:
        self._process, self._errors = process, errors
        self._listening: asyncio.Task[None] | None = None

    @classmethod
    async def start(
        cls, module: str, *args: str, errors: Path, hear: Callable[[str], None], env: dict[str, str]
    ) -> DemoProcess:
        """Start a module; each line that it prints is heard at once."""
        with errors.open("ab") as sink:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", module, *args),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=sink,
                env={**os.environ, **env},
                start_new_session=True,  # Ctrl-C is for us alone; we end them
            )
        child = cls(process, errors)
        child._listening = asyncio.create_task(child._listen(hear))
        return child

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Tell whether it has not ended, as far as we have been told."""
        return self._process.returncode is None

    def kill(self) -> None:
        """Send SIGKILL."""
        with suppress(ProcessLookupError):
            self._process.kill()

    async def gone(self) -> None:
        """Wait until it is no more."""
        await self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()
        if self._listening is not None:
            await self._listening

    def last_words(self) -> str:
        """Return the end of what it wrote to standard error."""
        return self._errors.read_text(errors="replace").strip()[-1000:]

    async def _listen(self, hear: Callable[[str], None]) -> None:
        if self._process.stdout is not None:
            async for line in self._process.stdout:
                hear(line.decode().strip())


def end_with_parent() -> None:
    """Make this process end when its parent has: the pipe to its standard input closes then."""

    def watch() -> None:
        while os.read(0, 1024):
            pass
        os._exit(0)

    threading.Thread(target=watch, daemon=True).start()
