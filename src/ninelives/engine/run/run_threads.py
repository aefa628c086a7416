"""Threads that run a run's code: those that we start for it, and foreign ones of pools or frameworks.

A foreign thread that carries the run's context (`copy_context().run`) calls steps like any other thread of
the run. Each such piece of work is a separate branch, named by its first call, because threads arrive in any
order.

We cannot observe directly when foreign threads become idle: one waits for another, or for an event loop that
it runs itself. So, only in runs that have them, we sample the stack frames of the run's threads: a thread in
a blocking call of the standard library, or one that has not moved for a while, is idle; a thread whose piece
of work is over is gone. See docs/decisions/0016.
"""

from __future__ import annotations

import asyncio
import concurrent.futures.thread
import os.path
import sys
import threading
import time
from collections.abc import Callable
from contextvars import Context, ContextVar
from types import FrameType
from typing import Any, TypeVar

from ninelives.engine.context import BRANCH
from ninelives.engine.run.execution import Execution

T = TypeVar("T")
CHECK_SECONDS = 0.002
"""The first interval between two samples; it grows up to LONGEST_CHECK_SECONDS."""
LONGEST_CHECK_SECONDS = 0.02
STABLE_SECONDS = 0.005
"""How long no thread of a run may have moved before the run counts as quiescent."""
STILL_SECONDS = 0.1
"""How long a thread outside the known blocking calls must stand still before it counts as idle."""
_WAITS = frozenset(
    {
        ("threading.py", "wait"),
        ("threading.py", "join"),
        ("threading.py", "_wait_for_tstate_lock"),
        ("threading.py", "acquire"),
        ("queue.py", "get"),
        ("thread.py", "_worker"),
        ("selectors.py", "select"),
        ("runners.py", "run"),
    }
)
"""The blocking calls (file, function) in which a thread waits for another thread or for events."""

_POOL = concurrent.futures.thread.__file__
_local = threading.local()
_LINE: ContextVar[object] = ContextVar("ninelives_line", default=None)
_naming = threading.Lock()


class RunThread:
    """A thread that runs a run's agent code, and the task that it waits for, if any.

    `is_awake`: it has resumed after its last outcome was delivered. `work`: in a thread of a pool, the frame
    of the current piece of work.
    """

    __slots__ = ("is_awake", "is_over", "moved_at", "seen", "thread", "waits_for", "work")

    def __init__(self) -> None:
        self.is_over = self.is_awake = False
        self.waits_for: asyncio.Task[Any] | None = None
        self.thread = 0
        self.work: FrameType | None = None
        self.seen: tuple[FrameType, int] | None = None
        self.moved_at = 0.0

    def take(self) -> None:
        """Bind this object to the current thread."""
        self.thread, self.work = threading.get_ident(), _work(sys._getframe(1))  # noqa: SLF001
        self.is_awake = True

    def is_of(self, thread: int, frame: FrameType) -> bool:
        """Return whether a thread is still executing the same piece of work."""
        return thread == self.thread and (self.work is None or _work(frame) is self.work)

    def is_still(self, top: FrameType, now: float) -> bool:
        """Return whether the thread has not moved since the last sample."""
        seen, self.seen = self.seen, (top, top.f_lasti)
        if seen is not None and seen[0] is top and seen[1] == top.f_lasti and self.is_awake:
            return True
        self.moved_at = now
        return False

    def is_waiting(self, top: FrameType, now: float) -> bool:
        """Return whether a thread that has not moved is waiting, by its position and for how long."""
        where = (os.path.basename(top.f_code.co_filename), top.f_code.co_name)  # noqa: PTH119
        return where in _WAITS or now - self.moved_at > STILL_SECONDS


def _work(frame: FrameType | None) -> FrameType | None:
    """Return the frame in which a thread of a pool executes one piece of work; None in other threads."""
    while frame is not None:
        code = frame.f_code
        if code.co_name == "run" and code.co_filename == _POOL:
            return frame
        frame = frame.f_back
    return None


class RunThreads:
    """The threads of one execution that has foreign ones."""

    def __init__(self, execution: Execution) -> None:
        self._execution = execution
        self._known: dict[int, RunThread] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._pause = CHECK_SECONDS
        self._moved_at = time.monotonic()

    def here(self) -> RunThread:
        """Return the RunThread of the current thread, which is foreign."""
        thread = threading.get_ident()
        known = self._known.get(thread)
        if known is None or not known.is_of(thread, sys._getframe(1)):  # noqa: SLF001
            known = self._known[thread] = RunThread()
            known.take()
        return known

    def is_at_rest(self) -> bool:
        """Return whether everything that runs is a waiting thread; else schedule the next check if needed.

        A thread that another one has woken may not have moved yet, so all of them must stand still for
        STABLE_SECONDS.
        """
        running, frames = self._execution.delivery.running, sys._current_frames()  # noqa: SLF001
        now, are_waiting = time.monotonic(), True
        for one in tuple(running):
            if not isinstance(one, RunThread):
                self._moved_at = now
                return False  # not a thread: it schedules the next check when it is done
            top = frames.get(one.thread)
            if one.is_awake and (top is None or not one.is_of(one.thread, top)):
                self._drop(one)
                self._moved_at = now
            elif top is None or not one.is_still(top, now):
                self._moved_at = now
            elif not one.is_waiting(top, now):
                are_waiting = False
        if are_waiting and now - self._moved_at >= STABLE_SECONDS:
            self._pause = CHECK_SECONDS
            return True
        self._check_later()
        return False

    def _drop(self, thread: RunThread) -> None:
        thread.seen = thread.work = None
        self._execution.delivery.running.discard(thread)
        if self._known.get(thread.thread) is thread:
            del self._known[thread.thread]

    def _check_later(self) -> None:
        if self._timer is None:
            self._timer = self._execution.loop.call_later(self._pause, self._check_now, context=Context())
            self._pause = min(self._pause * 1.5, LONGEST_CHECK_SECONDS)

    def _check_now(self) -> None:
        self._timer = None
        self._execution.delivery.check_soon()


def run_as(thread: RunThread, work: Callable[[], T]) -> T:
    """Run code of a run in this thread, which we started for it."""
    _local.thread = thread
    thread.take()
    try:
        return work()
    finally:
        _local.thread = None
        thread.seen = thread.work = None


def line(execution: Execution, name: Callable[[], str], task: object = None) -> RunThread:
    """Return the RunThread of the current thread; foreign work that is new to the run gets a branch.

    `task` is the calling task if the call comes from another event loop in this thread. `name` returns the
    name of the branch, made of what is called first.
    """
    thread: RunThread | None = getattr(_local, "thread", None)
    delivery = execution.delivery
    if thread is not None and task is None:
        return thread
    with _naming:
        outside = delivery.outside = execution.part(RunThreads)
        thread = thread if thread is not None else outside.here()
        mine = thread if task is None else task
        if _LINE.get() is not mine:
            _LINE.set(mine)
            BRANCH.set(BRANCH.get().child(name()))
    return thread
