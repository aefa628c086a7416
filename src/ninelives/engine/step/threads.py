"""Plain `def` code: steps and waits called from a thread of a run.

The thread sends its call to the event loop, which owns the journal; a body that must run is sent back and
runs in the calling thread. A waiting thread counts as idle, so that recorded outcomes are delivered in order.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from contextvars import ContextVar, copy_context
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeVar

from ninelives.core.errors import UsageError
from ninelives.engine.context import FRAME, WatchedFrame
from ninelives.engine.run.branch_task import BranchTask
from ninelives.engine.run.current import current, execution_of, here
from ninelives.engine.run.execution import Execution
from ninelives.engine.run.run_threads import RunThread, line, run_as, watched
from ninelives.engine.spec.registry import Step
from ninelives.engine.step import other_loops, resumable
from ninelives.engine.step.other_loops import LEASE_CHECK_SECONDS

T = TypeVar("T")
IN_ITS_OWN: ContextVar[bool] = ContextVar("ninelives_in_its_own", default=False)
"""Whether plain functions run in a daemon thread, for which the process's exit does not wait.

Set for user functions that run beside bodies, such as `verify=`.
"""
Perform = Callable[..., Coroutine[Any, Any, Any]]
LANDING_SECONDS = 60.0
"""How long compensations wait for a body that is still running in a thread."""


class Work:
    """A body sent to the thread that called it.

    It does not begin if it is cancelled by the time the thread comes to it. A cancellation after that moment
    cannot stop it: it runs on, its value is dropped, and compensations wait for it (`landed`).
    """

    __slots__ = ("frame", "function", "outcome")

    def __init__(self, function: Callable[[], Any], outcome: asyncio.Future[Any]) -> None:
        self.function, self.outcome, self.frame = function, outcome, FRAME.get()
        UNDER_WAY.add(self)

    @property
    def may_begin(self) -> bool:
        """Whether the run's code has not cancelled the body."""
        return not self.outcome.cancelled()  # a read of one field: safe in any thread


UNDER_WAY: set[Work] = set()
"""Bodies sent to their threads or running there. `testing` waits for them when it simulates a death."""


def call(step: Step, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a step that is plain `def`.

    Raises UsageError on the event loop's own thread, which it would block.
    """
    execution = current(step.name)
    if execution is None or FRAME.get() is not None:
        resumable.refuse_inside(execution, step, args, kwargs)
        return step.function(*args, **kwargs)
    return ask(execution, step, args, kwargs, resumable.perform)


def ask(
    execution: Execution,
    step: Step,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    perform: Perform,
    functions: Sequence[Callable[..., Any]] = (),
) -> Any:
    """Perform a step on the event loop and run its body in this thread.

    `functions` are its ways to ask, if there are several; `perform` is given a body for each, and they run
    one after the other. Raises UsageError on the event loop's own thread, which it would block.
    """
    refuse_on_loop(execution, step.name)
    thread = line(execution, lambda: other_loops.first_call(step, args, kwargs))
    bodies: SimpleQueue[Work | None] = SimpleQueue()

    def body_of(function: Callable[..., Any]) -> resumable.Function:
        def body(*passed: Any, **named: Any) -> Awaitable[Any]:
            outcome: asyncio.Future[Any] = execution.loop.create_future()
            bodies.put(Work(lambda: function(*passed, **named), outcome))
            return outcome

        return body

    hooks = execution.body_hooks
    own = functions or (step.function if hooks is None else hooks.around(step),)
    ways = [body_of(one) for one in own]
    return _ask(execution, lambda: perform(execution, step, args, kwargs, *ways), bodies, thread)


def wait(execution: Execution, what: str, coroutine: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Block this thread until the event loop has awaited the coroutine; return its result."""
    found: T = _ask(execution, coroutine, SimpleQueue(), line(execution, lambda: what))
    return found


def refuse_on_loop(execution: Execution, what: str) -> None:
    """Refuse a blocking call on the event loop's own thread. Raises UsageError."""
    try:
        here = asyncio.get_running_loop() is execution.loop
    except RuntimeError:
        return
    if here:
        raise UsageError(
            f"{what} is a plain function, called on the event loop, which it would hold up",
            run=execution.run.id,
            remedy=f"await asyncio.to_thread({what}, ...), or make it async def",
        )


def _ask(
    execution: Execution,
    coroutine: Callable[[], Coroutine[Any, Any, Any]],
    bodies: SimpleQueue[Work | None],
    thread: RunThread,
) -> Any:
    """Have the event loop await a coroutine for this thread; run the bodies that it sends back."""
    context, loop, ident = copy_context(), execution.loop, threading.get_ident()
    tasks: list[asyncio.Task[Any]] = []
    running = execution.delivery.running

    def begin() -> None:
        # On the loop: from here on the thread waits for the task, and counts as idle.
        running.discard(thread)
        task = BranchTask(coroutine(), loop=loop, context=context)
        task.thread = ident
        execution.adopt(task)
        task.add_done_callback(finish)
        tasks.append(task)
        thread.waits_for = task
        # The code that started the thread was cancelled while this call was on its way to the loop.
        if thread.is_over:
            task.cancel()
        execution.delivery.check_soon()

    def finish(_: asyncio.Task[Any]) -> None:
        # Before the queue wakes the thread: until it runs, its old position must not pass for rest.
        thread.is_awake = False
        # Not quiescent until the thread has gone on: its next call may claim the next record.
        if not thread.is_over:
            running.add(thread)
        bodies.put(None)

    loop.call_soon_threadsafe(begin, context=context)
    while (work := bodies.get()) is not None:
        _run(loop, work)
    thread.is_awake = True
    return tasks[0].result()


def _run(loop: asyncio.AbstractEventLoop, work: Work) -> None:
    try:
        if work.may_begin:
            _run_body(loop, work)
    finally:
        UNDER_WAY.discard(work)


def _run_body(loop: asyncio.AbstractEventLoop, work: Work) -> None:
    token = FRAME.set(work.frame)
    try:
        # The lease check comes last: it catches every delay on the way to this thread. Only the moment
        # between this comparison and the body's first line stays unchecked.
        if not _has_lease(work):
            return
        value, error = work.function(), None
    except BaseException as caught:  # noqa: BLE001 (handed over as it is)
        value, error = None, caught
    finally:
        FRAME.reset(token)
    loop.call_soon_threadsafe(other_loops.settle, work.outcome, value, error)


def _has_lease(work: Work) -> bool:
    """Wait until a body may begin; return False if it never may.

    Sending it to this thread may have taken so long that the lease ran out meanwhile.
    """
    if work.frame is None:
        return True
    execution = execution_of(work.frame.position)
    while (now_ms := execution.clock.boot_ms()) >= execution.lease.until_ms:
        if execution.sealed is not None or work.outcome.done():
            return False
        time.sleep(LEASE_CHECK_SECONDS)
        if not work.may_begin:
            return False  # cancelled while it waited
    work.frame.admitted_ms = now_ms
    return True


async def landed(execution: Execution) -> None:
    """Wait until no body of a run is running in a thread, for LANDING_SECONDS at most.

    A body in a thread cannot be stopped when the run's code cancels it; its compensation must come after it.
    """
    until = execution.loop.time() + LANDING_SECONDS
    while execution.loop.time() < until and any(  # noqa: ASYNC110 (the body ends in a thread, which may be stuck)
        _is_of(execution, work) for work in tuple(UNDER_WAY)
    ):
        await asyncio.sleep(LEASE_CHECK_SECONDS)


def _is_of(execution: Execution, work: Work) -> bool:
    return work.frame is not None and work.frame.position.execution is execution


def lend(
    run_in_executor: Callable[..., asyncio.Future[T]], executor: Any, function: Callable[..., T], *args: Any
) -> asyncio.Future[T]:
    """Replace the event loop's `run_in_executor`; a thread that runs agent code counts as running.

    So `asyncio.to_thread` in an agent keeps its position in the journal's order. When the agent's code
    cancels it, the step that the thread waits for is withdrawn, as in a task. The work gets a dedicated
    thread: queued in the shared pool it could deadlock with threads that wait for delivery order.
    """
    execution, frame = here(), FRAME.get()
    if execution is None or frame is not None:
        if executor is None and IN_ITS_OWN.get():
            return _start(asyncio.get_running_loop(), partial(function, *args))
        if isinstance(frame, WatchedFrame):
            return _lend_watched(frame, run_in_executor, executor, partial(function, *args))
        return run_in_executor(executor, function, *args)
    thread = RunThread()
    watched(execution)
    execution.delivery.running.add(thread)
    work = partial(run_as, thread, partial(function, *args))
    future = _start(execution.loop, work) if executor is None else run_in_executor(executor, work)

    def leave(_: asyncio.Future[T]) -> None:
        thread.is_over = True
        if thread.waits_for is not None and not thread.waits_for.done():
            thread.waits_for.cancel()
        _leave(execution, thread)

    future.add_done_callback(leave)
    return future


def _leave(execution: Execution, thread: RunThread) -> None:
    execution.delivery.running.discard(thread)
    execution.delivery.check_soon()


def _lend_watched(
    frame: WatchedFrame,
    run_in_executor: Callable[..., asyncio.Future[T]],
    executor: Any,
    function: Callable[[], T],
) -> asyncio.Future[T]:
    """Run a body's executor work; until it ends it counts as at work, even after the body has ended."""
    work, begun = object(), threading.Event()

    def watched() -> T:
        begun.set()
        # Again: a cancellation at this moment may have removed it, and the work runs all the same.
        frame.at_work.add(work)
        try:
            return function()
        finally:
            frame.at_work.discard(work)

    def forget(future: asyncio.Future[T]) -> None:
        if future.cancelled() and not begun.is_set():
            frame.at_work.discard(work)  # cancelled in the queue: it never begins

    frame.at_work.add(work)
    future = run_in_executor(executor, watched)
    future.add_done_callback(forget)
    return future


def _start(
    loop: asyncio.AbstractEventLoop, work: Callable[[], T], name: str = "agent code"
) -> asyncio.Future[T]:
    """Run `work` in a dedicated daemon thread, for which the process's exit does not wait."""
    done: asyncio.Future[T] = loop.create_future()

    def main() -> None:
        value, error = None, None
        try:
            value = work()
        except BaseException as caught:  # noqa: BLE001 (handed over as it is)
            error = caught
        with suppress(RuntimeError):  # the event loop is closed: no caller is left
            loop.call_soon_threadsafe(other_loops.settle, done, value, error)

    threading.Thread(target=main, name=name, daemon=True).start()
    return done


async def run_agent(execution: Execution, work: Callable[[], Any]) -> Any:
    """Run a plain `def` agent in a dedicated thread; its steps are performed on the event loop.

    When cancelled, it cancels the call in which the thread waits; the thread ends from there, or from its
    next call, and this waits for that.
    """
    thread = RunThread()
    watched(execution)
    execution.delivery.running.add(thread)
    inside = partial(copy_context().run, run_as, thread, work)
    done: asyncio.Future[Any] = _start(execution.loop, inside, f"run {execution.run.id}")
    done.add_done_callback(lambda _: _leave(execution, thread))
    try:
        # Shielded: a thread cannot be cancelled, and its end must be known before the run ends.
        return await asyncio.shield(done)
    except asyncio.CancelledError:
        if thread.waits_for is not None:
            thread.waits_for.cancel()
        await done
        raise
