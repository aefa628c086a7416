"""One test runtime with its event loop, on a store that outlives both; it simulates a worker process.

Its death simulates a killed process: tasks are never resumed and never unwound (no `finally` block runs, not
even when the test process exits). Bodies in threads cannot be killed, so we wait for them, as if they had
ended just before the kill. Only what the kernel would release for a dead process is closed.
"""

from __future__ import annotations

import asyncio
import ctypes
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, cast

from ninelives.core.model.session import Cause, Evidence
from ninelives.engine.run.branch_task import BranchTask
from ninelives.engine.run.execution import Execution
from ninelives.engine.step import threads as plain
from ninelives.engine.worker import event_loop
from ninelives.engine.worker.gc_tuning import put_back
from ninelives.runtime.runtime import ProcessOptions, Runtime
from ninelives.store import Store
from ninelives.testing.clock import SkippingClock
from ninelives.testing.dying_store import Died, DyingStore, Kill
from ninelives.testing.loop import SkippingLoop

T = TypeVar("T")
_BURY_SECONDS = 30.0


class RuntimeLife:
    """A runtime that may die at a store call."""

    def __init__(self, under: Store, clock: SkippingClock, kill: Kill | None) -> None:
        self._under = under
        self.store = DyingStore(under, kill)
        self._loop = SkippingLoop(clock)
        self.store.on_death = lambda: cast("None", self._loop.call_soon_threadsafe(_end_here))
        self._runtime = Runtime(cast("Any", self.store), process=ProcessOptions(clock=clock))
        self._loop.is_busy = self._is_busy
        self._loop.is_idle_poll = self._is_idle_poll
        self._loop.run_until_complete(self._runtime.__aenter__())

    def do(self, work: Callable[[Runtime], Awaitable[T]]) -> T:
        """Run `work` on the runtime and return its result. Raises Died, and whatever `work` raises."""

        async def main() -> T:
            return await work(self._runtime)

        with put_back():
            return self._loop.run_until_complete(main())

    def wake(self) -> None:
        """Wake the runtime because the store changed; may be called from any thread."""
        self._loop.call_soon_threadsafe(self._runtime.notify)

    def close(self) -> None:
        """End without a kill."""
        self._loop.run_until_complete(self._runtime.__aexit__(None, None, None))
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self.bury()

    def bury(self) -> None:
        """Release threads, sockets and sessions; after a death, keep the tasks so that they never unwind."""
        if self.store.where:
            event_loop.leave(self._loop)
            # Leak the tasks on purpose: garbage collection would close their coroutines and run `finally`.
            for task in asyncio.all_tasks(self._loop):
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(task))
            self._await_bodies()
        self.store.bury()
        self._runtime.abandon()
        executor = cast("Any", self._loop)._default_executor
        if executor is not None:
            executor.shutdown(wait=True)
        self._loop.close()
        gone = {one.id: Evidence(is_gone=True, signal=9) for one in self._under.list_sessions()}
        self._under.end_sessions(list(gone), Cause.DIED, evidence=gone)

    def _is_busy(self) -> bool:
        """Return whether a commit or plain code of a run is in progress."""
        return self._runtime.is_committing or any(
            execution.delivery.running or _plain_bodies(execution)
            for execution in self._runtime.executions.values()
        )

    def _is_idle_poll(self, timer: asyncio.TimerHandle) -> bool:
        """Return whether a timer is an idle worker's one-second poll; real changes wake the worker anyway."""
        limit = getattr(cast("Any", timer)._callback, "__self__", None)
        return isinstance(limit, asyncio.Timeout) and self._runtime.is_worker(cast("Any", limit)._task)

    def _await_bodies(self) -> None:
        """Wait for running plain bodies: a real kill would stop them, a simulated one lets them finish."""
        deadline = time.monotonic() + _BURY_SECONDS
        while any(work.outcome.get_loop() is self._loop for work in tuple(plain.UNDER_WAY)):
            if time.monotonic() > deadline:
                raise AssertionError(f"a body that ran at a kill is still running after {_BURY_SECONDS} s")
            time.sleep(0.0005)


def _plain_bodies(execution: Execution) -> list[BranchTask]:
    """Return the tasks whose plain body runs in a thread, or is about to."""
    return [
        task
        for task in execution.open_branches()
        if isinstance(task, BranchTask) and task.thread is not None and task.body_of is not None
    ]


def _end_here() -> None:
    raise Died
