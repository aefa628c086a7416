"""Threads that run a run's code: those that we start for it, and foreign ones of pools or frameworks.

A foreign thread that carries the run's context (`copy_context().run`) calls steps like any other thread of
the run. Each such piece of work is a separate branch, named by its first call, because threads arrive in any
order.

We cannot observe directly when a thread becomes idle: it waits for another thread, for an event loop that it
runs itself, or for what the run's own code will bring (a queue, an event, a future). So, only while an
outcome waits because threads of its run are running, we sample their stack frames:
- A thread in a blocking call of the standard library (lock, event, queue, future, join, selector) is idle.
- Any other thread is idle once it has stood still for STILL_SECONDS (a sleep, a socket) without CPU time; the
  latter is known on Linux only. A thread that computes moves, and holds up delivery.
- A thread that polls is idle if each sample of STILL_SECONDS found it in a blocking call.
- A foreign thread whose piece of work is over is gone.

A thread that keeps a ready outcome from delivery for HELD_SECONDS stops the run with a UsageError.
See docs/decisions/0016.
"""

from __future__ import annotations

import asyncio
import concurrent.futures.thread
import os.path
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context, ContextVar
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

from ninelives.core.errors import UsageError
from ninelives.engine.context import BRANCH
from ninelives.engine.run.current import user_line
from ninelives.engine.run.execution import Execution

T = TypeVar("T")
CHECK_SECONDS = 0.002
"""The first interval between two samples; it grows up to LONGEST_CHECK_SECONDS."""
LONGEST_CHECK_SECONDS = 0.02
STABLE_SECONDS = 0.005
"""How long no thread of a run may have moved before the run counts as quiescent."""
STILL_SECONDS = 0.1
"""How long a thread outside the known blocking calls must stand still before it counts as idle."""
HELD_SECONDS = 3_600.0
"""How long the threads of a run may hold up a ready outcome before the run stops with an error."""
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

    __slots__ = (
        "_cpu",
        "_moved_at",
        "_native",
        "_worked_at",
        "is_awake",
        "is_over",
        "seen",
        "thread",
        "waits_for",
        "work",
    )

    def __init__(self) -> None:
        self.is_over = self.is_awake = False
        self.waits_for: asyncio.Task[Any] | None = None
        self.thread = self._native = 0
        self.work: FrameType | None = None
        self.seen: tuple[FrameType, int] | None = None
        self._cpu: list[bytes] = []
        self._moved_at = self._worked_at = 0.0

    def take(self) -> None:
        """Bind this object to the current thread."""
        self.thread, self.work = threading.get_ident(), _work(sys._getframe(1))  # noqa: SLF001
        self._native = threading.get_native_id()
        self.is_awake = True

    def is_of(self, thread: int, frame: FrameType) -> bool:
        """Return whether a thread is still executing the same piece of work."""
        return thread == self.thread and (self.work is None or _work(frame) is self.work)

    def has_moved(self, top: FrameType, now: float) -> bool:
        """Take a sample; return whether the thread has moved since the last one."""
        seen, self.seen = self.seen, (top, top.f_lasti)
        # Not awake: an outcome is on its way to the thread, which still stands where it waited for it.
        is_same = self.is_awake and seen is not None and seen[0] is top and seen[1] == top.f_lasti
        if _is_in_wait(top) and self.is_awake:
            if not is_same:
                self._moved_at = now
            return not is_same and now - self._worked_at <= STILL_SECONDS  # else it polls
        # A loop without calls is always seen at its jump: only its CPU time shows that it computes.
        cpu, self._cpu = self._cpu, _cpu_time(self._native)
        self._worked_at = now
        if not is_same or cpu != self._cpu or b"R" in cpu:
            self._moved_at = now
            return True
        return False

    def is_waiting(self, top: FrameType, now: float) -> bool:
        """Return whether a thread that has not moved is waiting, by its position and for how long."""
        return _is_in_wait(top) or now - self._moved_at > STILL_SECONDS


def _is_in_wait(top: FrameType) -> bool:
    """Return whether a thread stands in a blocking call of the standard library."""
    return (os.path.basename(top.f_code.co_filename), top.f_code.co_name) in _WAITS  # noqa: PTH119


def _goes_on(top: FrameType) -> bool:
    """Return whether a waiting thread may go on by itself: it sleeps, has a limit, or waits for a socket."""
    if not _is_in_wait(top) or top.f_code.co_name == "select":
        return True
    # None and -1 are the standard library's ways to wait without a limit.
    return top.f_locals.get("timeout") not in (None, -1)


def _cpu_time(thread: int) -> list[bytes]:
    """Return the state of a thread ("R": it runs) and its CPU time; nothing where that is unknown."""
    with suppress(OSError):
        fields = Path(f"/proc/self/task/{thread}/stat").read_bytes().rpartition(b") ")[2].split()
        return [fields[0], *fields[11:13]]
    return []


def _work(frame: FrameType | None) -> FrameType | None:
    """Return the frame in which a thread of a pool executes one piece of work; None in other threads."""
    while frame is not None:
        code = frame.f_code
        if code.co_name == "run" and code.co_filename == _POOL:
            return frame
        frame = frame.f_back
    return None


class RunThreads:
    """The threads of one execution.

    `has_foreign`: some of them are foreign, or run an event loop of their own. `may_go_on`: when all of them
    were last found at rest, one of them could go on by itself.
    """

    def __init__(self, execution: Execution) -> None:
        self._execution = execution
        self._known: dict[int, RunThread] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._pause = CHECK_SECONDS
        self._moved_at = self._sampled_at = time.monotonic()
        self._held: tuple[RunThread, object, float] | None = None
        self.has_foreign = self.may_go_on = False

    def here(self) -> RunThread:
        """Return the RunThread of the current thread, which is foreign."""
        thread = threading.get_ident()
        known = self._known.get(thread)
        # A pool's thread goes from one piece of work to the next: each is a branch of its own.
        if known is None or not known.is_of(thread, sys._getframe(1)):  # noqa: SLF001
            known = self._known[thread] = RunThread()
            known.take()
        return known

    def is_at_rest(self) -> bool:
        """Return whether everything that runs is a waiting thread; else schedule the next check if needed.

        A thread that another one or the run's code has woken may not have moved yet, so all of them must
        stand still for STABLE_SECONDS, also after each delivery.
        """
        running, frames = self._execution.delivery.running, sys._current_frames()  # noqa: SLF001
        now, busy, self.may_go_on = time.monotonic(), None, False
        if now - self._sampled_at > 2 * LONGEST_CHECK_SECONDS:
            self._moved_at = now  # a new series: the run's code may have woken a thread meanwhile
        self._sampled_at = now
        for one in tuple(running):
            if not isinstance(one, RunThread):
                self._moved_at = now
                return False  # not a thread: it schedules the next check when it is done
            top = frames.get(one.thread)
            if self._is_gone(one, top):
                self._drop(one)
                self._moved_at = now
            elif top is None or one.has_moved(top, now):
                self._moved_at, busy = now, one
            elif not one.is_waiting(top, now):
                busy = one
            elif not self.has_foreign:
                self.may_go_on = self.may_go_on or _goes_on(top)
        if busy is None and now - self._moved_at >= STABLE_SECONDS:
            # `_moved_at` too: the delivery that follows may wake
            # a thread, and the next rest must be seen again.
            self._pause, self._moved_at, self._held = CHECK_SECONDS, now, None
            return True
        self._hold(busy, frames, now)
        self._check_later()
        return False

    def _is_gone(self, one: RunThread, top: FrameType | None) -> bool:
        """Return whether a foreign thread has ended, or its piece of work has; others report their end."""
        if top is None:
            return one.is_awake and self._known.get(one.thread) is one
        return one.is_awake and not one.is_of(one.thread, top)

    def _hold(self, busy: RunThread | None, frames: dict[int, FrameType], now: float) -> None:
        """Stop the run if a thread has held up a ready outcome for too long: it may wait for that outcome."""
        held = self._held
        if busy is None or not self._execution.delivery.has_ready:
            self._held = None
        elif held is None or held[0] is not busy or held[1] is not busy.waits_for:
            self._held = (busy, busy.waits_for, now)  # another thread, or it has called a step since
        elif now - held[2] > HELD_SECONDS:
            self._execution.seal(_held_up(self._execution.run.id, frames.get(busy.thread)))

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


def _held_up(run: str, frame: FrameType | None) -> UsageError:
    return UsageError(
        f"a thread of the run at {user_line(frame) or 'an unknown place'} has run for {HELD_SECONDS:.0f} s "
        "without a step, and outcomes of steps wait until it rests",
        run=run,
        remedy="Move what it computes into a step; if it waits for the run's other code, let it wait in a "
        "blocking call (queue.get, Event.wait, Future.result) and not in a loop",
    )


def watched(execution: Execution) -> RunThreads:
    """Return the threads of an execution; from now on delivery asks them whether they are at rest."""
    threads = execution.delivery.outside = execution.component(RunThreads)
    return threads


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
    if thread is not None and task is None:
        return thread
    # Threads of one context share its branch, whose counts of children are not safe for threads.
    with _naming:
        outside = watched(execution)
        outside.has_foreign = True
        thread = thread if thread is not None else outside.here()
        mine = thread if task is None else task
        if _LINE.get() is not mine:
            _LINE.set(mine)
            BRANCH.set(BRANCH.get().child(name()))
    return thread
