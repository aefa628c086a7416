"""Non-resumable actions: the intent is durable before the body starts; no start is repeated blindly.

The rules are those of `core.journal.settlement`. If we die after the intent and before the outcome, the next
worker finds a start without an outcome and settles it (`engine.protected.doubt`). So does this worker when
its body fails in a way that does not prove that nothing was done.
"""

from __future__ import annotations

import asyncio
import types
from collections.abc import Awaitable, Callable, Generator
from contextvars import copy_context
from functools import partial
from typing import Any

from ninelives.core.clock import boot_reading
from ninelives.core.errors import UsageError
from ninelives.core.journal.matching import Start
from ninelives.core.journal.replay import Recorded, write_body
from ninelives.core.model.commit import Outcome
from ninelives.core.model.run import Kind
from ninelives.core.model.totals import Facts
from ninelives.engine.context import EXECUTION, FRAME
from ninelives.engine.protected import business_keys, doubt, fork_reuse, left_processes
from ninelives.engine.protected.protected_call import Body, Ended, ProtectedCall
from ninelives.engine.run import identity
from ninelives.engine.run.branch_task import enter_body, leave_body
from ninelives.engine.run.current import asks, current
from ninelives.engine.run.execution import Execution
from ninelives.engine.run.lifecycle import OPEN
from ninelives.engine.run.lookup import Care, StepLookup
from ninelives.engine.run.waits import turn_away, wait_until
from ninelives.engine.spec.protection import Protection
from ninelives.engine.spec.registry import Step
from ninelives.engine.step import approval, other_loops, resumable, threads
from ninelives.engine.step.envelope import deliver, reader, refuse_foreign_timer

ABANDON_SECONDS = 1.0
"""How long a body may take to end after its time limit; after that it counts as still running."""


async def call(step: Step, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a protected action that is `async def`."""
    execution: Any = EXECUTION.get() or current(step.name)
    if execution is None:
        return await step.function(*args, **kwargs)
    if FRAME.get() is not None:
        _refuse_inside(execution, step)
    if asyncio.get_running_loop() is not execution.loop:
        return await other_loops.ask(execution, step, args, kwargs, perform)
    function = step.function if execution.hooks is None else execution.hooks.around(step)
    return await perform(execution, step, args, kwargs, lambda: function(*args, **kwargs))


def call_plain(step: Step, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a protected action that is plain `def`."""
    execution = current(step.name)
    if execution is None:
        return step.function(*args, **kwargs)
    _refuse_inside(execution, step)
    return threads.ask(execution, step, args, kwargs, perform)


def _refuse_inside(execution: Execution, step: Step) -> None:
    frame = FRAME.get()
    if frame is not None:
        resumable.stop_if_done(execution, step)
        what = "non-resumable" if step.effect is not None and not step.effect.resumable else "keyed"
        raise UsageError(
            f"{step.name} is a {what} action, called inside step {frame.position.name}",
            run=execution.run.id,
            step=frame.position.id,
            remedy="Call it from the agent itself: inside a step it could be repeated unseen",
        )


async def perform(
    execution: Execution, step: Step, args: tuple[Any, ...], kwargs: dict[str, Any], body: Body
) -> Any:
    """Return the outcome of a protected action at its position in the run."""
    effect: Protection = step.effect  # type: ignore[assignment]
    act = ProtectedCall(execution, step, effect, args, kwargs, body)
    if act.branch is not None:
        # An ending run waits for what its branches have under way (`run.tasks.clear`).
        act.branch.foreign_timer, act.branch.act = None, act
    try:
        if execution.phase is not OPEN:
            await turn_away(execution)
        return await _outcome(act)
    except asyncio.CancelledError:
        if act.is_waiting:  # the key may be free on replay: the record makes it wait for the cancellation
            execution.note(Kind.WITHDRAWN, act.position.id, write_body(act.fingerprint), Facts(step.kind))
        refuse_foreign_timer(act.branch, act.position)
        raise
    finally:
        if act.branch is not None:
            act.branch.act = None


async def _outcome(act: ProtectedCall) -> Any:
    """Return the recorded outcome of an action, or perform the action."""
    execution, step = act.execution, act.step
    if act.given is not None:
        identity.take_id(execution, act.natural, step)
    start: Start | None = None
    if execution.may_know(act.position.id):
        found = await identity.find(_asking(act))
        if isinstance(found, Recorded):
            return await deliver(execution, found, reader(step), step=step, held=act)
        act.use_key(act.key)  # again: `find` may have moved the position
        start = found
        if start is not None and not act.effect.resumable:
            act.recall()  # under way from here on, even if its caller is cancelled
    await (act.patiently(execution.barrier) if act.is_under_way else execution.barrier())
    if start is not None and start.is_open and start.key != (act.key or ""):
        return await _under_old_key(act, start, act.key)
    if not execution.replay.starts(act.position.id):  # an earlier start is settled even on a lossy store
        _refuse_lossy(act)
    if step.approval is not None:
        # First what came of an open start: a denial on record would hide that it may have happened.
        ended = await business_keys.settle_start(act) if act.is_under_way else None
        if ended is not None:
            return await act.conclude(ended)
        await approval.obtain(
            execution, step, act.fingerprint, act.position, act.args, act.kwargs, act.position.key()
        )
    return await _carry_out(act)


async def _begin(act: ProtectedCall, wait: Callable[[], Awaitable[None]]) -> None:
    """Wait until all recorded outcomes are delivered.

    An action that has started is under way, even if its caller is cancelled meanwhile.
    """
    act.use_key(act.key)  # again: `find` may have moved the position
    if not act.effect.resumable:
        act.recall()
    await (act.patiently(wait) if act.is_under_way else wait())


def _asking(act: ProtectedCall) -> StepLookup:
    return StepLookup(
        act.execution,
        act.natural,
        act.fingerprint,
        where=lambda: asks(act.step),
        aliases=act.step.aliases,
        is_effect=True,
        given=act.given,
        care=Care.of_step(act.step),
        begin=partial(_begin, act),
    )


async def _under_old_key(act: ProtectedCall, start: Start, key: str | None) -> Any:
    """Continue a start that was made under another key than the action has now: the old key counts.

    The new key is used once the start is proved not to have happened.
    """
    act.use_key(start.key or None)
    if act.effect.resumable:
        if start.key:
            return await business_keys.carry_out(act, _start)
        return await resumable.execute(act.execution, act.step, act.fingerprint, act.position, act.body)
    act.recall()
    ended = await business_keys.settle_start(act)
    if ended is not None:
        return await act.conclude(ended)
    act.use_key(key)
    return await _carry_out(act)


def _refuse_lossy(act: ProtectedCall) -> None:
    """Refuse to start a non-resumable action on a store that may lose its intent."""
    why = None if act.effect.resumable else act.execution.store.lossy
    if why is not None:
        raise UsageError(
            f"a non-resumable action is not started on a store that may lose its intent: {why}",
            run=act.execution.run.id,
            step=act.position.id,
            remedy="Correct the server's settings, or declare it resumable if repeating it does no harm",
        )


async def _carry_out(act: ProtectedCall) -> Any:
    """Start the action, or settle its earlier start, until there is an outcome."""
    if act.key is not None:
        return await business_keys.carry_out(act, _start)
    if act.standing.may_start and not act.standing.next:
        act.recall()
    ended: Ended | None = None
    if act.execution.replay.passage is not None and not act.standing.next:
        ended = await fork_reuse.offer(act)
    while ended is None:
        ended = await (_start(act) if act.standing.may_start else doubt.settle(act))
    return await act.conclude(ended)


async def _start(act: ProtectedCall) -> Ended | None:
    """Start the body once; return None when another start may be made, or this one is in doubt."""
    if act.standing.due_ms or act.execution.phase is not OPEN:
        await _pause(act)
    _refuse_lossy(act)
    number, effect = act.standing.next, act.effect
    # Read before the intent: every process that the body leaves behind began after this moment.
    boot, boot_ms = boot_reading(act.execution.clock)
    verdict = await act.record(
        Kind.INTENT,
        await business_keys.reserves(act),
        n=number,
        w=act.execution.run.session or "",
        l=effect.limit_ms,
        b=act.step.is_async,
        boot=boot,
        boot_ms=boot_ms,
        sid=left_processes.own_sid(),
    )
    if verdict.outcome is not Outcome.COMMITTED:
        return await business_keys.refused(act, verdict)
    # CRASH: the intent is durable and the body has not begun: in doubt, and verified or escalated.
    # The body has not begun, so the start can be voided; once it has, only an outcome or a doubt ends it.
    if act.is_cancelled:
        await _withdraw(act, number)
    try:
        _refuse_lossy(act)  # again: a restarted server, lossy now, may have taken the intent
    except UsageError as error:
        await act.record(Kind.VOIDED, act.releases(), n=number, why=f"it was not begun: {error.what}"[:500])
        raise
    await business_keys.learn_generation(act, verdict)
    return await doubt.judge(act, await _run(act, number), number)


async def _withdraw(act: ProtectedCall, number: int) -> None:
    """Void a start whose body has not begun: the run's code has cancelled it."""
    voided = act.draft(Kind.VOIDED, n=number, why="it was cancelled before it began")
    await act.write(
        [voided, resumable.withdrawn(act.position, act.fingerprint, act.step.kind)],
        business_keys.extras(act.releases()),
    )
    raise asyncio.CancelledError


async def _pause(act: ProtectedCall) -> None:
    due_ms = act.standing.due_ms
    if due_ms and due_ms > act.execution.store.now_ms():
        what = f"to try {act.step.name} again"
        await act.patiently(lambda: wait_until(act.execution, due_ms, what), waits=True)
    if act.execution.phase is not OPEN:
        await turn_away(act.execution)


async def _run(act: ProtectedCall, number: int) -> asyncio.Task[Any]:
    """Run the body until it ends or its time limit is over; the task is not done if it still runs."""
    execution, position = act.execution, act.position
    if execution.clock.boot_ms() >= execution.lease.until_ms:
        await act.patiently(execution.require_lease)
    # After the wait for the lease: the time limit counts from when the body may run.
    frame = act.begin()
    frame.attempt = number + 1
    context = copy_context()
    context.run(FRAME.set, frame)
    if execution.output is not None:
        execution.output.begin(position.id)
    deadline = execution.loop.time() + act.effect.limit_ms / 1000
    enter_body(act.branch, execution)
    # Not by the task factory: that would make a branch of it, which ends with the run's other tasks.
    running = asyncio.Task(_contained(act), loop=execution.loop, context=context)
    try:
        await act.patiently(
            lambda: asyncio.wait({running}, timeout=max(0.0, deadline - execution.loop.time()))
        )
        # A plain body runs in a thread, which nothing can stop: it is kept, and its outcome may still come.
        if not running.done() and act.step.is_async:
            frame.is_cut = True
            running.cancel()
            await act.patiently(lambda: asyncio.wait({running}, timeout=ABANDON_SECONDS))
    except asyncio.CancelledError:
        running.cancel()  # the execution is sealed: the next worker finds the start in doubt
        raise
    finally:
        frame.is_over = True
        leave_body(act.branch)
    if execution.output is not None:
        execution.output.settle(position.id, stands=_gave_value(running))
    return running


def _gave_value(running: asyncio.Task[Any]) -> bool:
    return running.done() and not running.cancelled() and running.exception() is None


async def _contained(act: ProtectedCall) -> Any:
    execution = act.execution
    try:
        if execution.clock.boot_ms() >= execution.lease.until_ms:  # the process may have been stopped since
            await execution.require_lease()
        if act.frame is not None:
            act.frame.admitted_ms = execution.clock.boot_ms()
        return await (guarded(execution, act.body) if act.step.is_async else act.body())
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise RuntimeError("the body ended in CancelledError, and no code cancelled it") from error
    except (KeyboardInterrupt, SystemExit, GeneratorExit) as error:
        raise RuntimeError(f"the body raised {error!r}") from error


async def _awaited(body: Callable[[], Awaitable[Any]]) -> Any:
    return await body()


@types.coroutine
def guarded(execution: Execution, body: Callable[[], Awaitable[Any]]) -> Generator[Any, Any, Any]:
    """Await a body; after each of its awaits it continues only while the lease holds.

    A process that was stopped, or a machine that was suspended, resumes in the middle of a body; by then
    another worker may have settled the start. Nothing can stop a body between two awaits; at each await we
    can. See docs/decisions/0017.
    """
    inner = _awaited(body)
    value, error = None, None
    while True:
        try:
            awaits = inner.send(value) if error is None else inner.throw(error)
        except StopIteration as end:
            return end.value
        value, error = None, None
        try:
            value = yield awaits
            if execution.clock.boot_ms() >= execution.lease.until_ms:
                yield from execution.require_lease().__await__()
        except GeneratorExit:
            inner.close()
            raise
        except BaseException as caught:  # noqa: BLE001 (handed on as it is)
            error = caught
