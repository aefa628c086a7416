"""An event loop on a test's clock: when it could only wait for timers, it skips to the next one.

While a thread, a socket or the committer is busy, the loop waits for it in real time and the clock stands
still. Only waits longer than `MOMENT_SECONDS` count on the clock, so that time limits also end real waits.
"""

from __future__ import annotations

import asyncio
import selectors
import time
from collections.abc import Callable
from typing import Any, cast

from ninelives.testing.clock import SkippingClock

MOMENT_SECONDS = 0.5
"""Real waits up to this long do not count on the clock."""
_TICK_SECONDS = 1e-6
"""How far a skip goes past its timer; otherwise rounding could leave the timer in the future every time."""


class SkippingLoop(asyncio.SelectorEventLoop):
    """A loop that never waits for a timer."""

    def __init__(self, clock: SkippingClock) -> None:
        self._clock, self._jobs = clock, 0
        self.is_busy: Callable[[], bool] = lambda: False
        """Returns whether something works that is neither a socket nor an executor job."""
        self.is_idle_poll: Callable[[asyncio.TimerHandle], bool] = lambda _: False
        """Returns whether a timer is only an idle poll, for which no time is skipped."""
        super().__init__(_CountingSelector(clock))

    def time(self) -> float:
        """Return the test's time."""
        return self._clock.passed_seconds

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> Any:  # type: ignore[override]
        """Run a function in a thread; no time is skipped until it is done."""
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
        """Skip to the next timer if only time can make progress."""
        loop = cast("Any", self)
        watched = len(loop._selector.get_map())
        if self._jobs or watched > 1 or self.is_busy():  # one socket is the loop's own, for wake-ups
            return
        timers = [timer for timer in loop._scheduled if not timer._cancelled and not self.is_idle_poll(timer)]
        due = min((timer.when() for timer in timers), default=0.0)
        if due > self.time():
            self._clock.skip(due - self.time() + _TICK_SECONDS)


class _CountingSelector(selectors.DefaultSelector):
    """Adds long real waits to the test's clock."""

    def __init__(self, clock: SkippingClock) -> None:
        super().__init__()
        self._test_clock = clock

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Wait for events; give real work at least `MOMENT_SECONDS` before a timer counts as due."""
        if timeout == 0:
            return super().select(0)
        began = time.monotonic()
        found = super().select(None if timeout is None else max(timeout, MOMENT_SECONDS))
        waited = time.monotonic() - began
        if not found or waited > MOMENT_SECONDS:
            self._test_clock.skip(max(waited, timeout or 0.0) + _TICK_SECONDS)
        return found
