"""The tasks of a run: its agent code, the branches that this code starts, and how all of them end.

At the end the run's tasks are cancelled and get one second. Code that swallows the cancellation and calls a
step or a wait is cancelled again, a hundred times, and then waits without end. Tasks that have not ended
after the second are abandoned: they begin and record nothing for the run, and nothing waits for them, not
even the exit of the process.

A run whose agent code has ended does not end before its non-resumable actions that have started: each gets
its outcome first, or the run parks or escalates with the doubt, as if the agent awaited it. If we die
meanwhile, the next worker replays the agent to its end and finds the starts. See docs/decisions/0016.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator
from contextvars import Context, copy_context
from types import CoroutineType
from typing import Any

from ninelives.engine.commit.sealing import allow_secrets
from ninelives.engine.context import BRANCH, EXECUTION, FRAME, WatchedFrame
from ninelives.engine.run.branch_task import BranchTask
from ninelives.engine.run.current import here
from ninelives.engine.run.execution import Execution
from ninelives.engine.run.lifecycle import OPEN

ABANDON_SECONDS = 1.0


async def run_code(execution: Execution, code: Any) -> asyncio.Task[Any] | None:
    """Run code inside the run until it ends; None when the execution was sealed first."""
    context = copy_context()
    context.run(EXECUTION.set, execution)
    context.run(BRANCH.set, execution.root)
    context.run(FRAME.set, None)
    context.run(allow_secrets, execution.store)
    task = BranchTask(contained(code), loop=execution.loop, context=context, name=f"run {execution.run.id}")
    task.code = code
    execution.adopt(task)
    await execution.over(task)
    if execution.sealed is None:
        await clear(execution)
    if execution.sealed is None:
        return task
    if task.done() and not task.cancelled():
        task.exception()  # parked as it ended, and will be replayed: keeps asyncio from logging the error
    return None


async def clear(execution: Execution) -> None:
    """Cancel the remaining tasks of a run; abandon those that do not end within a second."""
    left = execution.open_branches()
    if not left:
        return
    # The tasks of an open run may call steps while they clean
    # up; those of a closed one are cancelled at each call.
    if execution.phase is not OPEN:
        execution.abandon()
    for task in left:
        task.cancel()
    _, stuck = await asyncio.wait(left, timeout=ABANDON_SECONDS)
    if stuck and execution.sealed is None and execution.has_started_actions:
        stuck = await _let_land(execution)
    for task in stuck:
        execution.abandon()
        _abandon(task)


async def _let_land(execution: Execution) -> set[asyncio.Task[Any]]:
    """Wait for the outcomes of non-resumable actions that have started; nothing else begins meanwhile.

    Returns the tasks to abandon; none when the execution is sealed, because sealing cleans up by itself.
    """
    execution.land()
    execution.delivery.check_soon()  # it may park now
    while execution.sealed is None and execution.has_started_actions:
        left = {*execution.open_branches(), execution.when_sealed()}
        await asyncio.wait(left, timeout=ABANDON_SECONDS, return_when=asyncio.FIRST_COMPLETED)
    return set(execution.open_branches()) if execution.sealed is None else set()


def _abandon(task: asyncio.Task[Any]) -> None:
    task.add_done_callback(_forget)
    task._log_destroy_pending = False  # type: ignore[attr-defined]  # noqa: SLF001
    asyncio.tasks._unregister_task(task)  # noqa: SLF001 (asyncio.run would wait for it without end)


def _forget(task: asyncio.Task[Any]) -> None:
    if not task.cancelled():
        task.exception()


async def contained(code: Coroutine[Any, Any, Any]) -> Any:
    """Await a run's code; turn what would end the whole process into an error of the run."""
    try:
        return await code
    except (SystemExit, KeyboardInterrupt) as leaving:
        raise RuntimeError(f"the agent's code raised {leaving!r}") from leaving


def make_task(
    loop: asyncio.AbstractEventLoop,
    coroutine: Coroutine[Any, Any, Any] | Generator[Any, None, Any],
    *,
    context: Context | None = None,
    **options: Any,
) -> asyncio.Task[Any]:
    """Create a task; in agent code it is a branch of the run. This is the event loop's task factory."""
    execution, frame = here(), FRAME.get()
    if execution is None or frame is not None:
        plain: asyncio.Task[Any] = asyncio.Task(coroutine, loop=loop, context=context, **options)
        # A body is over only when all that it began is (docs/decisions/0017).
        if isinstance(frame, WatchedFrame):
            frame.at_work.add(plain)
            plain.add_done_callback(frame.at_work.discard)
        return plain
    name = getattr(coroutine, "__qualname__", type(coroutine).__name__).replace("<locals>.", "")
    # A copy: one context may be given to several tasks, and each is a branch of its own.
    branched = context.copy() if context is not None else copy_context()
    branched.run(BRANCH.set, BRANCH.get().child(name))
    if not isinstance(coroutine, CoroutineType):
        task = execution.task_type(coroutine, loop=loop, context=branched, **options)
    else:
        task = execution.task_type(contained(coroutine), loop=loop, context=branched, **options)
        task.code = coroutine
    execution.adopt(task)
    return task
