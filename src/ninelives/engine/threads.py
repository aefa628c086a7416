"""Plain `def` code: steps and waits called from a thread of a run.

The thread asks the event loop, where the journal is; a body that must run comes back and runs in the thread
that called. While a thread waits it counts as at rest, so that recorded outcomes are delivered in order.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeVar

from ninelives.core.errors import UsageError
from ninelives.engine import steps
from ninelives.engine.context import EXECUTION, FRAME, current
from ninelives.engine.execution import BranchTask, Execution
from ninelives.engine.registry import Step

T = TypeVar("T")
Perform = Callable[[Execution, Step, tuple[Any, ...], dict[str, Any], steps.Body], Coroutine[Any, Any, Any]]
_local = threading.local()
_LEASE_LOOK_SECONDS = 0.01


class Work:
    """A body on its way to the thread that called it; begins once, and not after it was withdrawn."""

    __slots__ = ("_gate", "_is_withdrawn", "frame", "function", "outcome")

    def __init__(self, function: Callable[[], Any], outcome: asyncio.Future[Any]) -> None:
        self.function, self.outcome, self.frame = function, outcome, FRAME.get()
        self._gate, self._is_withdrawn = threading.Lock(), False
        outcome.add_done_callback(self._settled)
        UNDER_WAY.add(self)

    def begin(self) -> bool:
        """Tell whether the body may begin now."""
        with self._gate:
            return not self._is_withdrawn

    def _settled(self, outcome: asyncio.Future[Any]) -> None:
        if outcome.cancelled():
            with self._gate:
                self._is_withdrawn = True


UNDER_WAY: set[Work] = set()
"""Bodies on their way to their threads, or at work there: who plays a process's death waits for them."""


def call(step: Step, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a step that is plain `def`.

    Raises UsageError on the event loop's own thread, which it would hold up.
    """
    execution = current(step.name)
    if execution is None or FRAME.get() is not None:
        steps.refuse_inside(execution, step)
        return step.function(*args, **kwargs)
    return ask(execution, step, args, kwargs, steps.perform)


def ask(
    execution: Execution, step: Step, args: tuple[Any, ...], kwargs: dict[str, Any], perform: Perform
) -> Any:
    """Have a step performed on the event loop, and its body run here.

    Raises UsageError on the event loop's own thread, which it would hold up.
    """
    refuse_on_loop(execution, step.name)
    desk: SimpleQueue[Work | None] = SimpleQueue()

    def body() -> Awaitable[Any]:
        outcome: asyncio.Future[Any] = execution.loop.create_future()
        desk.put(Work(lambda: step.function(*args, **kwargs), outcome))
        return outcome

    return _ask(execution, lambda: perform(execution, step, args, kwargs, body), desk)


def wait(execution: Execution, coroutine: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Wait in a thread for something that is awaited elsewhere."""
    found: T = _ask(execution, coroutine, SimpleQueue())
    return found


def refuse_on_loop(execution: Execution, what: str) -> None:
    """Refuse to hold up the event loop."""
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
    execution: Execution, coroutine: Callable[[], Coroutine[Any, Any, Any]], desk: SimpleQueue[Work | None]
) -> Any:
    """Have the event loop await something for this thread, and run the bodies that it sends back."""
    context, loop, thread = copy_context(), execution.loop, threading.get_ident()
    asked: list[asyncio.Task[Any]] = []
    running, lent = execution.delivery.running, getattr(_local, "lent", None)

    def begin() -> None:
        running.discard(lent)
        task = BranchTask(coroutine(), loop=loop, context=context)
        task.thread = thread
        execution.adopt(task)
        task.add_done_callback(finish)
        asked.append(task)
        if isinstance(lent, Lent):
            lent.waits_for = task
            if lent.is_over:
                task.cancel()
        execution.delivery.look()

    def finish(_: asyncio.Task[Any]) -> None:
        if isinstance(lent, Lent) and not lent.is_over:
            running.add(lent)
        desk.put(None)

    loop.call_soon_threadsafe(begin, context=context)
    while (work := desk.get()) is not None:
        _run(loop, work)
    return asked[0].result()


def _run(loop: asyncio.AbstractEventLoop, work: Work) -> None:
    try:
        if _has_lease(work) and work.begin():
            _run_body(loop, work)
    finally:
        UNDER_WAY.discard(work)


def _run_body(loop: asyncio.AbstractEventLoop, work: Work) -> None:
    token = FRAME.set(work.frame)
    try:
        value, error = work.function(), None
    except BaseException as caught:  # noqa: BLE001 (handed over as it is)
        value, error = None, caught
    finally:
        FRAME.reset(token)
    loop.call_soon_threadsafe(_settle, work.outcome, value, error)


def _has_lease(work: Work) -> bool:
    """Wait until a body may begin, for the way to this thread may have taken long; False if it never may."""
    if work.frame is None:
        return True
    execution = work.frame.place.execution
    while execution.clock.boot_ms() >= execution.lease.until_ms:
        if execution.sealed is not None or work.outcome.done():
            return False
        time.sleep(_LEASE_LOOK_SECONDS)
    return True


def _settle(outcome: asyncio.Future[Any], value: Any, error: BaseException | None) -> None:
    if outcome.done():
        return
    if isinstance(error, StopIteration):
        error = RuntimeError(f"a step raised {error!r}")
    if error is None:
        outcome.set_result(value)
    else:
        outcome.set_exception(error)


class Lent:
    """A thread that runs a run's own code, and the task that it waits for, if it does."""

    __slots__ = ("is_over", "waits_for")

    def __init__(self) -> None:
        self.is_over = False
        self.waits_for: asyncio.Task[Any] | None = None


def run_as(lent: Lent, work: Callable[[], T]) -> T:
    """Run code of a run in this thread."""
    _local.lent = lent
    try:
        return work()
    finally:
        _local.lent = None


def lend(
    run_in_executor: Callable[..., asyncio.Future[T]], executor: Any, function: Callable[..., T], *args: Any
) -> asyncio.Future[T]:
    """Do as the event loop's `run_in_executor`; a thread lent to a run's own code counts as running.

    So `asyncio.to_thread` in an agent keeps its place in the order of the journal. When the agent's code
    cancels it, the step that the thread waits for is withdrawn, as it would be in a task. It gets a thread of
    its own: in a queue for one it would hold up those who have one, and wait for their turn.
    """
    execution = EXECUTION.get()
    if execution is None or FRAME.get() is not None:
        return run_in_executor(executor, function, *args)
    lent, delivery = Lent(), execution.delivery
    delivery.running.add(lent)
    work = partial(run_as, lent, partial(function, *args))
    future = _start(execution.loop, work) if executor is None else run_in_executor(executor, work)

    def give_back(_: asyncio.Future[T]) -> None:
        lent.is_over = True
        if lent.waits_for is not None and not lent.waits_for.done():
            lent.waits_for.cancel()
        delivery.running.discard(lent)
        delivery.look()

    future.add_done_callback(give_back)
    return future


def _start(loop: asyncio.AbstractEventLoop, work: Callable[[], T]) -> asyncio.Future[T]:
    """Run something in a thread of its own, for which the process's end does not wait."""
    done: asyncio.Future[T] = loop.create_future()

    def main() -> None:
        value, error = None, None
        try:
            value = work()
        except BaseException as caught:  # noqa: BLE001 (handed over as it is)
            error = caught
        with suppress(RuntimeError):  # the event loop was closed, and nobody asks any more
            loop.call_soon_threadsafe(_settle, done, value, error)

    threading.Thread(target=main, name="lent to a run", daemon=True).start()
    return done


async def run_agent(execution: Execution, work: Callable[[], Any]) -> Any:
    """Run a plain agent in a thread of its own; its steps come back to the event loop.

    Cancelled, it lets the thread leave from the call that it is in, or from its next one.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Any] = loop.create_future()
    context, lent = copy_context(), Lent()
    execution.delivery.running.add(lent)

    def report(value: Any, error: BaseException | None) -> None:
        execution.delivery.running.discard(lent)
        execution.delivery.look()
        _settle(done, value, error)

    def main() -> None:
        try:
            value, error = context.run(run_as, lent, work), None
        except BaseException as caught:  # noqa: BLE001 (handed over as it is)
            value, error = None, caught
        with suppress(RuntimeError):  # the event loop was closed, and nobody asks any more
            loop.call_soon_threadsafe(report, value, error)

    threading.Thread(target=main, name=f"run {execution.run.id}", daemon=True).start()
    try:
        return await asyncio.shield(done)
    except asyncio.CancelledError:
        if lent.waits_for is not None:
            lent.waits_for.cancel()
        await done
        raise
