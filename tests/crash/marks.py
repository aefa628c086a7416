"""`python -m tests.crash.marks WORDS TASK ARGUMENTS…`: do something, and be killed at a `# CRASH:` mark.

A mark is found by its first words, wherever it stands. The process is killed when it reaches the first line
of code after it: what the comment says of the next life is then what a test finds.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Any, Self

import ninelives

_SOURCE = Path(ninelives.__file__).parent
_ROOT = Path(__file__).parents[2]
_PATIENCE_SECONDS = 60


def location_of(words: str) -> tuple[str, int]:
    """Return the file and the first line of code after the one mark that begins with these words."""
    found = []
    for path in _SOURCE.rglob("*.py"):
        lines = path.read_text(encoding="utf-8").splitlines()
        for number, line in enumerate(lines, 1):
            if line.strip().startswith(f"# CRASH: {words}"):
                after = enumerate(lines[number:], number + 1)
                code = next(at for at, text in after if text.strip() and not text.strip().startswith("#"))
                found.append((str(path), code))
    assert len(found) == 1, f"{words!r} begins {len(found)} marks"
    return found[0]


def die_at(words: str) -> None:
    """Have this process killed when the current thread reaches a mark."""
    file, line = location_of(words)

    def watch(frame: FrameType, event: str, _: Any) -> Any:
        if frame.f_code.co_filename != file:
            return None
        if event == "line" and frame.f_lineno == line:
            os.kill(os.getpid(), signal.SIGKILL)
        return watch

    sys.settrace(watch)


class Victim:
    """A process that does a task and dies at a mark."""

    def __init__(self, words: str, task: str, *arguments: object) -> None:
        command = [sys.executable, "-m", "tests.crash.marks", words, task, *map(str, arguments)]
        self._process = subprocess.Popen(
            command, cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def read(self) -> str:
        """Return the next line that it says."""
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def dies(self) -> None:
        """Let it go on; it must be killed at its mark."""
        self._process.communicate("go\n", timeout=_PATIENCE_SECONDS)
        assert self._process.returncode == -signal.SIGKILL


def main(words: str, task: str, *arguments: str) -> None:
    """Do a task, `module:function`, that must reach the mark."""
    module, _, name = task.partition(":")
    work = getattr(import_module(module), name)
    die_at(words)
    work(*arguments)
    raise AssertionError(f"{task} never came to {words!r}")


if __name__ == "__main__":
    main(*sys.argv[1:])
