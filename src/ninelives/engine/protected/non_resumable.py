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
from ninelives.core.errors import NotDone, UsageError
from ninelives.core.journal.matching import Start
from ninelives.core.journal.replay import Recorded, write_body
from ninelives.core.model.commit import Outcome
from ninelives.core.model.run import Kind
from ninelives.core.model.totals import Facts
from ninelives.engine.context import EXECUTION, FRAME
from ninelives.engine.governor import Permit
from ninelives.engine.protected import business_keys, doubt, fork_reuse, left_processes
from ninelives.engine.protected.protected_call import Ended, Function, ProtectedCall
from ninelives.engine.run import identity
from ninelives.engine.run.branch_task import enter_body, leave_body
from ninelives.engine.run.current import call_site, current
from ninelives.engine.run.execution import Execution
from ninelives.engine.run.lifecycle import OPEN
from ninelives.engine.run.lookup import ProtectionLevel, StepLookup
from ninelives.engine.run.waits import turn_away, wait_until
from ninelives.engine.spec.protection import Protection
from ninelives.engine.spec.registry import Step
from ninelives.engine.step import approval, gate, other_loops, resumable, threads
from ninelives.engine.step.envelope import deliver, reader, refuse_foreign_timer, withdrawn

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
    function = step.function if execution.body_hooks is None else execution.body_hooks.around(step)
    return await perform(execution, step, args, kwargs, function)


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
    execution: Execution, step: Step, args: tuple[Any, ...], kwargs: dict[str, Any], function: Function
) -> Any:
    """Return the outcome of a protected action at its position in the run."""
    effect: Protection = step.effect  # type: ignore[assignment]
    action = ProtectedCall(execution, step, effect, args, kwargs, function)
    if action.branch is not None:
        # An ending run waits for what its branches have under way (`run.tasks.clear`).
        action.branch.foreign_timer, action.branch.protected_call = None, action
    try:
        if execution.phase is not OPEN:
            await turn_away(execution)
        return await _outcome(action)
    except asyncio.CancelledError:
        if action.is_waiting:  # the key may be free on replay: the record makes it wait for the cancellation
            execution.note(
                Kind.WITHDRAWN, action.position.id, write_body(action.fingerprint), Facts(step.kind)
            )
        refuse_foreign_timer(action.branch, action.position)
        raise
    finally:
        if action.branch is not None:
            action.branch.protected_call = None


async def _outcome(action: ProtectedCall) -> Any:
    """Return the recorded outcome of an action, or perform the action."""
    execution, step = action.execution, action.step
    if action.explicit_id is not None:
        identity.take_id(execution, action.own_position, step)
    start: Start | None = None
    if execution.may_have_record(action.position.id):
        found = await identity.find(_search(action))
        if isinstance(found, Recorded):
            return await deliver(execution, found, reader(step), step=step, held=action)
        action.use_key(action.key)  # again: `find` may have moved the position
        start = found
        if start is not None and not action.effect.resumable:
            action.load_standing()  # under way from here on, even if its caller is cancelled
    await (action.despite_cancellation(execution.barrier) if action.is_under_way else execution.barrier())
    if start is not None and start.is_open:
        action.resume(start.body)
    if start is not None and start.is_open and start.key != (action.key or ""):
        return await _under_old_key(action, start, action.key)
    if not execution.replay.starts(action.position.id):  # an earlier start is settled even on a lossy store
        _refuse_lossy(action)
    if approval.refuses(execution, step) and not action.is_under_way:
        await approval.refuse(execution, step, action.fingerprint, action.position)
    is_governed = execution.governing.governor is not None
    if (step.approval is not None or is_governed) and action.is_under_way:
        # First what came of an open start: a denial on record would hide that it may have happened.
        ended = await business_keys.settle_start(action)
        if ended is not None:
            return await action.conclude(ended)
    if is_governed:
        action.permitted(await gate.admit(action.gated()))
    elif step.approval is not None:
        await approval.obtain(
            approval.request(execution, step, action.fingerprint, action.position, action.args, action.kwargs)
        )
        action.admitted()
    return await _carry_out(action)


async def _begin(action: ProtectedCall, wait: Callable[[], Awaitable[None]]) -> None:
    """Wait until all recorded outcomes are delivered.

    An action that has started is under way, even if its caller is cancelled meanwhile.
    """
    action.use_key(action.key)  # again: `find` may have moved the position
    if not action.effect.resumable:
        action.load_standing()
    await (action.despite_cancellation(wait) if action.is_under_way else wait())


def _search(action: ProtectedCall) -> StepLookup:
    return StepLookup(
        action.execution,
        action.own_position,
        action.fingerprint,
        where=lambda: call_site(action.step),
        aliases=action.step.aliases,
        is_effect=True,
        explicit_id=action.explicit_id,
        level=ProtectionLevel.of_step(action.step),
        begin=partial(_begin, action),
    )


async def _under_old_key(action: ProtectedCall, start: Start, key: str | None) -> Any:
    """Continue a start that was made under another key than the action has now: the old key counts.

    The new key is used once the start is proved not to have happened.
    """
    action.use_key(start.key or None)
    if action.effect.resumable:
        if start.key:
            return await business_keys.carry_out(action, _start)
        permit: Permit | None = None
        if action.execution.governing.governor is not None:
            permit = await gate.admit(action.gated())
            permit = await gate.reserve(action.gated(), permit)
            action.permitted(permit)
        return await resumable.execute(
            action.execution,
            action.step,
            action.fingerprint,
            action.position,
            action.attempted,
            permit=permit,
        )
    action.load_standing()
    ended = await business_keys.settle_start(action)
    if ended is not None:
        return await action.conclude(ended)
    action.use_key(key)
    return await _carry_out(action)


def _refuse_lossy(action: ProtectedCall) -> None:
    """Refuse to start a non-resumable action on a store that may lose its intent."""
    why = None if action.effect.resumable else action.execution.store.lossy
    if why is not None:
        raise UsageError(
            f"a non-resumable action is not started on a store that may lose its intent: {why}",
            run=action.execution.run.id,
            step=action.position.id,
            remedy="Correct the server's settings, or declare it resumable if repeating it does no harm",
        )


async def _carry_out(action: ProtectedCall) -> Any:
    """Start the action, or settle its earlier start, until there is an outcome."""
    if action.key is not None:
        return await business_keys.carry_out(action, _start)
    if action.standing.may_start and not action.standing.next:
        action.load_standing()
    ended: Ended | None = None
    if action.execution.replay.passage is not None and not action.standing.next:
        ended = await fork_reuse.offer(action)
    while ended is None:
        ended = await (_start(action) if action.standing.may_start else doubt.settle(action))
    return await action.conclude(ended)


async def _start(action: ProtectedCall) -> Ended | None:
    """Start the body once; return None when another start may be made, or this one is in doubt."""
    if action.standing.due_ms or action.execution.phase is not OPEN:
        await _pause(action)
    _refuse_lossy(action)
    keys = await business_keys.may_begin(action)
    number, effect = action.standing.next, action.effect
    # Read before the intent: every process that the body leaves behind began after this moment.
    boot, boot_ms = boot_reading(action.execution.clock)
    verdict = await action.record(
        Kind.INTENT,
        keys,
        requires=action.requires,
        accounts=action.permit.accounts if action.permit is not None else (),
        j=action.judged(),
        n=number,
        w=action.execution.run.session or "",
        l=effect.limit_ms,
        b=action.step.is_async,
        boot=boot,
        boot_ms=boot_ms,
        sid=left_processes.own_sid(),
    )
    if verdict.outcome is not Outcome.COMMITTED:
        return await business_keys.refused(action, verdict)
    action.began()
    # CRASH: the intent is durable and the body has not begun: in doubt, and verified or escalated.
    # The body has not begun, so the start can be voided; once it has, only an outcome or a doubt ends it.
    if action.is_cancelled:
        await _withdraw(action, number)
    try:
        _refuse_lossy(action)  # again: a restarted server, lossy now, may have taken the intent
    except UsageError as error:
        await action.record(
            Kind.VOIDED, action.releases(), n=number, why=f"it was not begun: {error.what}"[:500]
        )
        raise
    await business_keys.learn_generation(action, verdict)
    return await doubt.judge(action, await _run(action, number), number)


async def _withdraw(action: ProtectedCall, number: int) -> None:
    """Void a start whose body has not begun: the run's code has cancelled it."""
    voided = action.draft(Kind.VOIDED, n=number, why="it was cancelled before it began")
    await action.write(
        [voided, withdrawn(action.position, action.fingerprint, action.step.kind)],
        business_keys.extras(action.releases(), action.settled(NotDone("it was cancelled before it began"))),
    )
    raise asyncio.CancelledError


async def _pause(action: ProtectedCall) -> None:
    due_ms = action.standing.due_ms
    if due_ms and due_ms > action.execution.store.now_ms():
        what = f"to try {action.step.name} again"
        await action.despite_cancellation(lambda: wait_until(action.execution, due_ms, what), waits=True)
    if action.execution.phase is not OPEN:
        await turn_away(action.execution)


async def _run(action: ProtectedCall, number: int) -> asyncio.Task[Any]:
    """Run the body until it ends or its time limit is over; the task is not done if it still runs."""
    execution, position = action.execution, action.position
    if execution.clock.boot_ms() >= execution.lease.until_ms:
        await action.despite_cancellation(execution.require_lease)
    # After the wait for the lease: the time limit counts from when the body may run.
    frame = action.begin()
    frame.attempt = number + 1
    context = copy_context()
    context.run(FRAME.set, frame)
    if execution.output is not None:
        execution.output.begin(position.id)
    deadline = execution.loop.time() + action.effect.limit_ms / 1000
    enter_body(action.branch, execution)
    # Not by the task factory: that would make a branch of it, which ends with the run's other tasks.
    running = asyncio.Task(_contained(action), loop=execution.loop, context=context)
    try:
        await action.despite_cancellation(
            lambda: asyncio.wait({running}, timeout=max(0.0, deadline - execution.loop.time()))
        )
        # A plain body runs in a thread, which nothing can stop: it is kept, and its outcome may still come.
        if not running.done() and action.step.is_async:
            frame.is_cut = True
            running.cancel()
            await action.despite_cancellation(lambda: asyncio.wait({running}, timeout=ABANDON_SECONDS))
    except asyncio.CancelledError:
        running.cancel()  # the execution is sealed: the next worker finds the start in doubt
        raise
    finally:
        frame.is_over = True
        leave_body(action.branch)
    if execution.output is not None:
        execution.output.settle(position.id, stands=_gave_value(running))
    return running


def _gave_value(running: asyncio.Task[Any]) -> bool:
    return running.done() and not running.cancelled() and running.exception() is None


async def _contained(action: ProtectedCall) -> Any:
    execution = action.execution
    try:
        if execution.clock.boot_ms() >= execution.lease.until_ms:  # the process may have been stopped since
            await execution.require_lease()
        if action.frame is not None:
            action.frame.admitted_ms = execution.clock.boot_ms()
        action.require_unchanged()
        return await (guarded(execution, action.body) if action.step.is_async else action.body())
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise RuntimeError("the body ended in CancelledError, and no code cancelled it") from error
    except (KeyboardInterrupt, SystemExit, GeneratorExit) as error:
        if isinstance(error, GeneratorExit) and FRAME.get() is not action.frame:
            raise  # the coroutine is closed or garbage-collected, by code that is not its own
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
