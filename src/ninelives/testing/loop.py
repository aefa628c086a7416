"""An event loop whose time is a test's clock: when only timers are left to wait for, it skips to the next.

While a thread, a socket or the committer is at work, the loop waits for that, and no time passes; only what
takes longer than a moment counts on the clock, so that time limits hold against real waiting too.
"""

from __future__ import annotations

import asyncio
import selectors
import time
from collections.abc import Callable
from typing import Any, cast

from ninelives.testing.clock import SkippingClock

MOMENT_SECONDS = 0.5
"""What the machine may take for its own work before it counts as time that has passed."""
_TICK_SECONDS = 1e-6
"""How far a skip goes past its timer: what is rounded away would otherwise be waited for again and again."""


class SkippingLoop(asyncio.SelectorEventLoop):
    """A loop that never waits for a timer."""

    def __init__(self, clock: SkippingClock) -> None:
        self._clock, self._jobs = clock, 0
        self.is_busy: Callable[[], bool] = lambda: False
        """Tells whether something is at work that is no socket and no job of an executor."""
        self.is_idle_poll: Callable[[asyncio.TimerHandle], bool] = lambda _: False
        """Tells the timers that are not worth a skip: somebody only looks whether something has happened."""
        super().__init__(_Watch(clock))

    def time(self) -> float:
        """Return the test's time."""
        return self._clock.passed_seconds

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> Any:  # type: ignore[override]
        """Run something in a thread; until it is done, no time is skipped."""
        self._jobs += 1
        future = super().run_in_executor(executor, func, *args)
        future.add_done_callback(self._job_done)
        return future

    def _job_done(self, _: asyncio.Future[Any]) -> None:
        self._jobs -= 1

    def _run_once(self) -> None:
        loop = cast("Any", self)
        if not loop._ready and not loop._stopping:
            self._skip()
        cast("Any", super())._run_once()

    def _skip(self) -> None:
        """Skip to the next timer, if nothing but time can bring anything."""
        loop = cast("Any", self)
        watched = len(loop._selector.get_map())
        if self._jobs or watched > 1 or self.is_busy():  # the one is the loop's own, for wake-ups
            return
        timers = [timer for timer in loop._scheduled if not timer._cancelled and not self.is_idle_poll(timer)]
        due = min((timer.when() for timer in timers), default=0.0)
        if due > self.time():
            self._clock.skip(due - self.time() + _TICK_SECONDS)


class _Watch(selectors.DefaultSelector):
    """Counts the time that was really waited for."""

    def __init__(self, clock: SkippingClock) -> None:
        super().__init__()
        self._test_clock = clock

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Wait, at least for a moment before a timer counts as due."""
        if timeout == 0:
            return super().select(0)
        began = time.monotonic()
        found = super().select(None if timeout is None else max(timeout, MOMENT_SECONDS))
        waited = time.monotonic() - began
        if not found or waited > MOMENT_SECONDS:
            self._test_clock.skip(max(waited, timeout or 0.0) + _TICK_SECONDS)
        return found
