"""The call site of a step in the user's code, for error messages and warnings.

Finding it walks the stack, so it is read only where a message may need it.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import sys
import threading
from pathlib import Path
from types import FrameType

from ninelives.engine.run.execution import BranchTask
from ninelives.engine.spec.registry import Step

_OURS = tuple(str(Path(__file__).parents[2] / room) for room in ("core", "engine", "sync.py"))
_ASYNCIO = str(Path(asyncio.__file__).parent)
_NOBODYS = (_ASYNCIO, threading.__file__, str(Path(concurrent.futures.__file__).parent))


def caller() -> str | None:
    """Return file and line of the user's code that waits for us; None for a task that is only a step."""
    task = asyncio.current_task()
    if isinstance(task, BranchTask) and task.thread is not None:
        # Plain `def` code in that thread made the call: it waits for this task, or is about to.
        return _first(sys._current_frames().get(task.thread), (*_OURS, _ASYNCIO))  # noqa: SLF001
    return _first(sys._getframe(1), _OURS)  # noqa: SLF001


def user_line(frame: FrameType | None) -> str | None:
    """Return file and line of the user's code in another thread's stack."""
    return _first(frame, (*_OURS, *_NOBODYS))


def _first(frame: FrameType | None, skipped: tuple[str, ...]) -> str | None:
    """Return the innermost frame that is not ours; None if that is only where a loop or thread begins."""
    while frame is not None and frame.f_code.co_filename.startswith(skipped):
        frame = frame.f_back
    if frame is None or frame.f_code.co_filename.startswith(_NOBODYS):
        return None
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def asks(step: Step) -> str:
    """Return the call site of a step as text: the line that calls it, else its declaration."""
    return caller() or f"{step.where} (the step; it is called as a task or in a thread)"
