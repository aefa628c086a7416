"""An event loop in virtual time: Python's own, but what it waits for is the machine's clock."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from tests.simulation.machine import Machine, Process, Thread

_ROUND_SECONDS = 0.00002
"""What one round of the loop takes: time goes on while there is work."""


class _Selector:
    """What the loop waits with: there are no sockets, only time and other threads."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[Any]:
        """Wait until something is due."""
        self._loop.rest(timeout)
        return []

    def get_map(self) -> dict[Any, Any]:
        """Return the sockets that are watched."""
        return {}


class VirtualLoop(asyncio.BaseEventLoop):
    """The event loop of one process."""

    def __init__(self, machine: Machine, process: Process) -> None:
        super().__init__()
        self._machine, self._process = machine, process
        self._thread: Thread | None = None
        self._is_resting = False
        self._selector = _Selector(self)
        process.loop = self

    def time(self) -> float:
        """Return the process's own clock."""
        return self._process.seconds()

    def rest(self, timeout: float | None) -> None:
        """Let others run until our time has come or somebody calls us."""
        seconds = None if timeout is None else max(timeout / self._process.rate, _ROUND_SECONDS)
        self._is_resting = seconds is None or seconds > _ROUND_SECONDS
        called: deque[asyncio.Handle] = self._ready  # type: ignore[attr-defined]
        if called:  # since our last look
            self._is_resting, seconds = False, _ROUND_SECONDS
        self._machine.block(seconds)
        self._is_resting = False

    def _process_events(self, event_list: list[Any]) -> None:
        """There are none."""

    def _write_to_self(self) -> None:
        if self._is_resting and self._thread is not None:
            self._machine.wake(self._thread)

    def run(self, main: asyncio.Task[Any]) -> None:
        """Run to the end of a task, in the current thread. Raises what it raises, unless it was cancelled."""
        self._thread = self._machine.current
        self._thread.loop = self
        asyncio._set_running_loop(self)
        while not main.done():
            self._run_once()  # type: ignore[attr-defined]
        with suppress(asyncio.CancelledError):
            main.result()

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, function: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """Run something in a thread of its own."""
        done: asyncio.Future[Any] = self.create_future()

        def main() -> None:
            value, error = None, None
            try:
                value = function(*args)
            except Exception as caught:
                error = caught
            with suppress(RuntimeError):
                self.call_soon_threadsafe(_settle, done, value, error)

        self._machine.spawn(self._process, main, "executor")
        return done

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Complain aloud about what nobody caught; what was pending when its process died is no news."""
        if "exception" in context and not self._process.is_dead:
            self._process.machine.complaints.append(f"{self._process.name}: {context}")


def _settle(done: asyncio.Future[Any], value: Any, error: Exception | None) -> None:
    if done.done():
        return
    if error is None:
        done.set_result(value)
    else:
        done.set_exception(error)
