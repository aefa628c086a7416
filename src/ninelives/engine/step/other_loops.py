"""Steps and waits that are awaited on another event loop than that of their run.

Examples: a plain `def` agent that calls `asyncio.run`, a framework's `run_sync`, a thread with its own loop.
The call is sent to the run's loop, which owns the journal. A body that must run is sent back to the calling
loop, because it may use clients and sockets of that loop. If we die here, the next worker makes the call
again. See docs/decisions/0016.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from contextvars import Context, copy_context
from typing import Any, ParamSpec, TypeVar

from ninelives.engine.commit.sealing import allow_secrets
from ninelives.engine.context import EXECUTION, FRAME, Frame
from ninelives.engine.run.branch_task import BranchTask
from ninelives.engine.run.current import here
from ninelives.engine.run.execution import Execution
from ninelives.engine.run.run_threads import line
from ninelives.engine.spec.registry import Step

P = ParamSpec("P")
T = TypeVar("T")
Perform = Callable[..., Coroutine[Any, Any, Any]]
LEASE_CHECK_SECONDS = 0.01
RESUME_SECONDS = 1.0
"""How long the calling loop may take to resume after an outcome; it may have ended instead."""


def is_elsewhere(execution: Execution) -> bool:
    """Return whether this code runs on another event loop than its run's."""
    return asyncio.get_running_loop() is not execution.loop


def at_home(function: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Decorate a coroutine function of the agent API so that other event loops can await it, too."""

    @functools.wraps(function)
    async def call(*args: P.args, **kwargs: P.kwargs) -> T:
        execution = here()
        if execution is None or FRAME.get() is not None or not is_elsewhere(execution):
            return await function(*args, **kwargs)
        call = _Call(execution, lambda: getattr(function, "__name__", "?"))
        found: T = await call.result(lambda: function(*args, **kwargs))
        return found

    return call


async def ask(
    execution: Execution,
    step: Step,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    perform: Perform,
    functions: Sequence[Callable[..., Any]] = (),
) -> Any:
    """Perform a step on its run's event loop and run its body on this one.

    `functions` are its ways to ask, if there are several; `perform` is given a body for each.
    """
    call = _Call(execution, lambda: first_call(step, args, kwargs))

    def body_of(function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *passed, **named: call.body(lambda: function(*passed, **named))

    hooks = execution.body_hooks
    own = functions or (step.function if hooks is None else hooks.around(step),)
    bodies = [body_of(one) for one in own]
    return await call.result(lambda: perform(execution, step, args, kwargs, *bodies))


def first_call(step: Step, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """Return a branch name from the first call: stable across replays, in whatever order calls come."""
    return f"{step.name}.{step.fingerprint(args, kwargs).digest.hex()[:8]}"


class _Call:
    """One call from this loop to the run's loop and back."""

    def __init__(self, execution: Execution, name: Callable[[], str]) -> None:
        self._execution, self._here = execution, asyncio.get_running_loop()
        self._thread = line(execution, name, asyncio.current_task())
        self._done: asyncio.Future[None] = self._here.create_future()
        self._task: asyncio.Task[Any] | None = None
        self._is_cancelled = False
        self._patience: asyncio.TimerHandle | None = None

    async def result(self, coroutine: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        """Await a coroutine on the run's loop. Cancelling this cancels it there, and waits for its end."""
        context, home = copy_context(), self._execution.loop
        self._execution.delivery.running.add(self._thread)
        home.call_soon_threadsafe(self._begin, coroutine, context, context=context)
        while not self._done.done():
            try:
                # Shielded: the step on the run's loop decides what the
                # cancellation comes to, and its outcome is recorded.
                await asyncio.shield(self._done)
            except asyncio.CancelledError:
                if self._done.cancelled():
                    raise
                self._is_cancelled = True
                home.call_soon_threadsafe(self._cancel)
        if self._task is None:
            raise asyncio.CancelledError
        value = self._task.result()
        if self._is_cancelled and (here := asyncio.current_task()) is not None:
            here.uncancel()  # too late for this call: the next await raises the cancellation
            here.cancel()
        return value

    # On the run's loop ---------------------------------------------------------------------------

    def _begin(self, coroutine: Callable[[], Coroutine[Any, Any, Any]], context: Context) -> None:
        self._task = BranchTask(coroutine(), loop=self._execution.loop, context=context)
        self._execution.adopt(self._task)
        self._task.add_done_callback(self._finish)
        # The caller may have been cancelled before the task existed.
        self._cancel()
        self._execution.delivery.check_soon()

    def _cancel(self) -> None:
        if self._is_cancelled and self._task is not None:
            self._task.cancel()

    def _finish(self, _: object) -> None:
        self._execution.delivery.running.add(self)  # not quiescent until the calling code has resumed
        with suppress(RuntimeError):  # that loop is closed: no caller is left
            self._here.call_soon_threadsafe(self._deliver)
            self._patience = self._execution.loop.call_later(RESUME_SECONDS, self._resumed, context=Context())
            return
        self._resumed()

    def _resumed(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
        self._execution.delivery.running.discard(self)
        self._execution.delivery.check_soon()

    def body(self, function: Callable[[], Coroutine[Any, Any, Any]]) -> asyncio.Future[Any]:
        """Run a body on the calling loop."""
        outcome: asyncio.Future[Any] = self._execution.loop.create_future()
        try:
            self._here.call_soon_threadsafe(self._start, function, FRAME.get(), outcome)
        except RuntimeError:  # that loop is closed
            outcome.cancel()
        return outcome

    # On the calling loop -------------------------------------------------------------------------

    def _deliver(self) -> None:
        if not self._done.done():
            self._done.set_result(None)
        # The caller resumes in the loop's next iteration, so it has resumed by the one after that.
        self._here.call_soon(self._here.call_soon, self._report)

    def _report(self) -> None:
        with suppress(RuntimeError):
            self._execution.loop.call_soon_threadsafe(self._resumed)

    def _start(
        self,
        function: Callable[[], Coroutine[Any, Any, Any]],
        frame: Frame | None,
        outcome: asyncio.Future[Any],
    ) -> None:
        context = copy_context()
        context.run(EXECUTION.set, self._execution)
        context.run(FRAME.set, frame)
        context.run(allow_secrets, self._execution.store)
        running = self._here.create_task(self._run(function, outcome), context=context)

        def stop(ended: asyncio.Future[Any]) -> None:
            if ended.cancelled():
                with suppress(RuntimeError):
                    self._here.call_soon_threadsafe(running.cancel)

        # On the run's loop: a future may be touched only on its own.
        self._execution.loop.call_soon_threadsafe(outcome.add_done_callback, stop)

    async def _run(
        self, function: Callable[[], Coroutine[Any, Any, Any]], outcome: asyncio.Future[Any]
    ) -> None:
        execution = self._execution
        value, error = None, None
        try:
            while (now_ms := execution.clock.boot_ms()) >= execution.lease.until_ms:
                if execution.sealed is not None or outcome.done():
                    return
                await asyncio.sleep(LEASE_CHECK_SECONDS)
            # The step was cancelled while its body was on the way to this loop: it must not begin.
            if outcome.cancelled():
                return
            if (frame := FRAME.get()) is not None:
                frame.admitted_ms = now_ms
            value = await function()
        except BaseException as caught:  # noqa: BLE001 (handed over as it is)
            error = caught
        with suppress(RuntimeError):
            execution.loop.call_soon_threadsafe(settle, outcome, value, error)


def settle(outcome: asyncio.Future[Any], value: Any, error: BaseException | None) -> None:
    """Give a future its outcome on its own loop, unless it has one: from a thread or another loop."""
    if outcome.done():
        return
    # A future refuses a StopIteration, and the code that awaits it would never wake.
    if isinstance(error, StopIteration):
        error = RuntimeError(f"a step raised {error!r}")
    if isinstance(error, asyncio.CancelledError):
        outcome.cancel(*error.args[:1])
    elif error is None:
        outcome.set_result(value)
    else:
        outcome.set_exception(error)
