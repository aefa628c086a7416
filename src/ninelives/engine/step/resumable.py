"""A call of a step: found in the journal, or executed, recorded and then delivered.

If we die before the outcome is durable, the next worker makes the call again and the body runs again under
the same key; if we die after, the call finds its record. In strict mode no code sees an outcome before it is
durable. In pipelined mode code may see it earlier, but everything that depends on it would be lost with it.
"""

from __future__ import annotations

import asyncio
import random
import time
from asyncio import get_running_loop
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import count
from typing import Any

from ninelives.core.errors import (
    InvariantViolation,
    NineLivesError,
    NotSerializable,
    Transient,
    UsageError,
)
from ninelives.core.governance.accounts import AccountOp
from ninelives.core.journal.replay import Attempt, Recorded, write_body
from ninelives.core.model.run import Kind, StepKind
from ninelives.core.model.totals import Facts, error_text
from ninelives.core.values.exceptions import encode_error, same_error
from ninelives.core.values.fingerprint import Fingerprint
from ninelives.core.values.retry import delay_seconds, reason_for, retry_after_seconds
from ninelives.engine.commit.ticket import NO_EXTRAS, Draft, Extras, charging
from ninelives.engine.context import BRANCH, EXECUTION, FRAME, Frame, StepPosition
from ninelives.engine.governor import Permit
from ninelives.engine.run import identity, lookup
from ninelives.engine.run.branch_task import BranchTask, current_branch, enter_body, leave_body
from ninelives.engine.run.current import call_site, current, execution_of
from ninelives.engine.run.execution import Execution
from ninelives.engine.run.lifecycle import OPEN, Phase
from ninelives.engine.run.lookup import StepLookup
from ninelives.engine.run.waits import turn_away
from ninelives.engine.spec import argument_changes
from ninelives.engine.spec.inner_calls import steps_called
from ninelives.engine.spec.registry import Step
from ninelives.engine.step import approval, gate, judging, other_loops, reservations
from ninelives.engine.step.envelope import (
    deliver,
    failure,
    reader,
    refuse_foreign_timer,
    result,
    took_ms,
    withdrawn,
)
from ninelives.engine.step.gate import GatedCall
from ninelives.engine.step.retry_pause import attempts_before, rest

Body = Callable[[], Awaitable[Any]]
Function = Callable[..., Awaitable[Any]]
"""A body that is given its arguments: those of the call, or others in their place."""
MOST_ATTEMPTS = 20
"""How many failed attempts are recorded with an outcome; the latest are kept."""


async def call(step: Step, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a step that is `async def`."""
    execution: Any = EXECUTION.get()  # read here, not by `current`: this is the hot path
    if execution is None:
        execution = current(step.name)
    if execution is None or FRAME.get() is not None:
        # Without a runtime a step is an ordinary function; inside a step, another step is part of its body.
        refuse_inside(execution, step, args, kwargs)
        return await step.function(*args, **kwargs)
    if get_running_loop() is not execution.loop:
        return await other_loops.ask(execution, step, args, kwargs, perform)
    function = step.function if execution.body_hooks is None else execution.body_hooks.around(step)
    return await perform(execution, step, args, kwargs, function)


def refuse_inside(
    execution: Execution | None, step: Step, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    """Refuse a step that cannot be part of another step's body. Raises UsageError, Denied, PolicyFailed."""
    if execution is None:
        return
    if step.approval is not None or step.is_transactional:
        why = "needs a person's approval" if step.approval is not None else "has a transaction of its own"
        raise UsageError(
            f"{step.name} {why} and cannot be carried out inside another step",
            run=execution.run.id,
            remedy="Call it from the agent",
        )
    frame = FRAME.get()
    if frame is not None and frame.kind is not StepKind.ACTION and lookup.is_effect_step(step):
        # The outer record says that nothing was done: changed code may drop it, or execute it again.
        stop_if_done(execution, step)
        outer, what = frame.position.name, lookup.read_text(frame.kind)
        raise UsageError(
            f"the action {step.name} is called inside the {what} {outer}, which may be repeated",
            run=execution.run.id,
            step=frame.position.id,
            remedy=f"Call {step.name} from the agent; or declare {outer} as an @nl.action: the whole is one "
            f"effect; or, if {step.name} only reads, declare it with reads_only=True",
        )
    if execution.governing.governor is not None:
        judging.require_allowed(execution, step, args, kwargs, "inside another step")
    if step.taint is not None and frame is not None:
        frame.reads(step.taint)


def stop_if_done(execution: Execution, step: Step) -> None:
    """Stop the run if the effect that is called inside a read is on record: the edit can be taken back.

    Without that the refused call fails the read, and with it the run.
    """
    frame = FRAME.get()
    if frame is None or frame.kind is StepKind.ACTION or not execution.is_resumed:
        return
    error = lookup.wrapped(frame.position, frame.kind, step)
    if error is not None:
        execution.on_loop(lambda: execution.seal(error))


async def perform(  # noqa: PLR0912 (the hot path: one coroutine fewer)
    execution: Execution, step: Step, args: tuple[Any, ...], kwargs: dict[str, Any], function: Function
) -> Any:
    """Return the recorded outcome of a step at its position in the run; if there is none, execute it."""
    fingerprint = step.fingerprint(args, kwargs, execution.lists)
    explicit_id = step.explicit_id(args, kwargs) if step.explicit_id is not None else None
    position = StepPosition(execution, BRANCH.get(), step.name, explicit_id)
    if explicit_id is not None:
        identity.take_id(execution, position, step)
    branch = current_branch(execution.loop)
    if branch is not None:
        # A timer that ended an earlier step of this branch must not be blamed for this one.
        branch.foreign_timer = None
    is_awaited = False
    try:
        if execution.phase is not OPEN:
            await turn_away(execution)
        if execution.may_have_record(position.id):
            # The usual case first: at its position, with the same arguments, a record needs no search.
            found = execution.replay.take_same(position.id, fingerprint.digest.hex()) or await _recall(
                execution, step, fingerprint, position, explicit_id
            )
            if found is not None:
                return await deliver(execution, found, reader(step), step=step)
            # Records are still unclaimed: what a decision or read returns
            # may lead the code to them, so fresh effects wait for it.
            is_awaited = not lookup.is_effect_step(step)
            if is_awaited:
                execution.delivery.read_begins()
        is_early = execution.is_pipelined and (step.is_decision or step.reads_only)
        if not is_early and not execution.is_clear:
            # A rehearsal (`check`) ends here: everything that the outside world could see comes after it.
            await execution.barrier(is_read=step.is_decision or step.reads_only)
        # Again: the lookup and the barrier may have taken
        # long, and the run may be paused or cancelled by now.
        if execution.phase is not OPEN:
            await turn_away(execution)
        if not step.reads_only and execution.is_on_cached_answers and approval.refuses(execution, step):
            await approval.refuse(execution, step, fingerprint, position)
        body: Body = partial(function, *args, **kwargs)
        permit: Permit | None = None
        if execution.governing.governor is not None:
            gated = GatedCall(execution, step, fingerprint, position, args, kwargs, position.key())
            said = gate.at_once(gated)
            permit = said if type(said) is Permit and not said.accounts else await gate.open_gate(gated, said)
            body = partial(function, *permit.args, **permit.kwargs)
            if permit.digest is not None:
                body = _as_admitted(execution, step, permit.args, permit.kwargs, permit.digest, body)
        elif step.approval is not None:
            body = await _approved(execution, step, fingerprint, position, args, kwargs, body)
        if not step.reads_only:
            # After the barrier: the body depends on all records
            # that are durable now, and salvage keeps those.
            execution.tail.effect_length = execution.tail.length
        value = await execute(
            execution, step, fingerprint, position, body, is_early=is_early, branch=branch, permit=permit
        )
    except asyncio.CancelledError:
        refuse_foreign_timer(branch, position)
        raise
    finally:
        if is_awaited:
            execution.delivery.read_ends()
    if (
        step.checks.left
        and not argument_changes.check(step, args, kwargs, fingerprint, execution.run.id)
        and execution.hooks is not None
    ):
        execution.hooks.arguments_changed(execution, step)
    return value


def _as_admitted(
    execution: Execution,
    step: Step,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    digest: bytes,
    body: Body,
) -> Body:
    """Return a body that begins no attempt with other arguments than were admitted."""

    def checked() -> Awaitable[Any]:
        frame = FRAME.get()
        is_first = frame is None or frame.attempt == 1
        argument_changes.require_same(step, args, kwargs, digest, execution.lists, is_first=is_first)
        return body()

    return checked


async def _approved(
    execution: Execution,
    step: Step,
    fingerprint: Fingerprint,
    position: StepPosition,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    body: Body,
) -> Body:
    """Return the body of a call once a person has approved it, with exactly these arguments."""
    await approval.obtain(approval.request(execution, step, fingerprint, position, args, kwargs))
    if fingerprint.plain is not None:
        return body
    digest = step.fingerprint(args, kwargs, execution.lists).digest
    return _as_admitted(execution, step, args, kwargs, digest, body)


async def _recall(
    execution: Execution,
    step: Step,
    fingerprint: Fingerprint,
    position: StepPosition,
    explicit_id: str | None,
) -> Recorded | None:
    """Return the outcome that an earlier execution recorded; None when the body may start now."""
    is_effect = lookup.is_effect_step(step)
    search = StepLookup(
        execution,
        position,
        fingerprint,
        where=lambda: call_site(step),
        aliases=step.aliases,
        is_effect=is_effect,
        explicit_id=explicit_id,
    )
    found = await identity.find(search)
    if found is None and not is_effect:
        await _refuse_wrapping(execution, step, position)
    return found if isinstance(found, Recorded) else None


async def _refuse_wrapping(execution: Execution, step: Step, position: StepPosition) -> None:
    """Stop the run before a read whose code calls an effect that is on record and unclaimed.

    The call would be refused in it. It is decided before the body starts, so that `check` says the same.
    """
    if not execution.replay.left and not execution.claims.open:
        return
    for inner in steps_called(step.function):
        error = lookup.wrapped(position, step.kind, inner) if lookup.is_effect_step(inner) else None
        if error is not None:
            execution.seal(error)
            await execution.forever()


async def execute(
    execution: Execution,
    step: Step,
    fingerprint: Fingerprint,
    position: StepPosition,
    body: Body,
    *,
    is_early: bool = False,
    branch: BranchTask | None = None,
    permit: Permit | None = None,
) -> Any:
    """Run the body, record its value or failure, and deliver it in order, once it is durable.

    `is_early`: it may be delivered before it is durable. `branch`: the current task, if the caller knows it.
    `permit`: what governs the run says of the call, if anything does.

    Raises CancelledError when the run's code cancelled the step meanwhile, even if the body swallowed that.
    """
    frame = Frame(position, fingerprint, step.kind)
    frame.taint = step.taint
    if permit is not None:
        frame.judged = permit.judged
    if permit is None or not permit.accounts:
        execution.intents.start(frame)
    else:  # what it reserved is on record, in an intent
        frame.at = execution.loop.time()
    task = branch or asyncio.current_task(execution.loop)
    # Counted before the body: a cancellation that was pending earlier is not this body's.
    frame.cancels = cancels = task.cancelling() if task is not None else 0
    value, failed = None, None
    try:
        try:
            # Encoded and decoded: the code gets exactly what a replay would get.
            data, value = step.codec.round(await attempt(execution, step, frame, body, branch, permit))
            draft = result(frame, data)
        except (Exception, SystemExit, KeyboardInterrupt) as error:  # noqa: BLE001 (a failure is an outcome)
            # The error as replay raises it: code that catches it must take the same path then.
            failed = same_error(named(error, execution, position), step.raises)
            draft = failure(frame, failed, encode_error(failed, raises=step.raises))
        if task is not None and task.cancelling() > cancels:
            raise asyncio.CancelledError  # noqa: TRY301 (the body swallowed it)
        if execution.output is not None:
            # Before the outcome is written: output becomes durable before the result that it belongs to.
            execution.output.settle(position.id, stands=failed is None)
    except asyncio.CancelledError:
        if execution.output is not None:
            execution.output.settle(position.id, stands=False)
        _note_withdrawn(step, frame, permit)
        raise
    accounts = reservations.outcome(step, permit, frame, failed or data) if permit is not None else ()
    if frame.taint is not None:
        execution.replay.taint.apply(frame.taint)
    if frame.answered is not None:
        execution.replay.note_answered(frame.answered)
    # CRASH: the body is done and its outcome is not durable: it runs again, under the same key.
    try:
        await settle(execution, draft, is_early=is_early, accounts=accounts)
    except asyncio.CancelledError:  # recorded but not delivered: replay must not deliver it either
        execution.note(Kind.WITHDRAWN, position.id, write_body(fingerprint), Facts(step.kind, took_ms(frame)))
        raise
    execution.done[step.slot] += 1
    if failed is not None:
        raise failed
    execution.counts.executed += 1
    return value


def _note_withdrawn(step: Step, frame: Frame, permit: Permit | None) -> None:
    """Record that the run's code cancelled a body, and settle what the call had reserved."""
    execution, fingerprint = execution_of(frame.position), frame.fingerprint
    accounts = reservations.outcome(step, permit, frame, None) if permit is not None else ()
    if not accounts:
        facts = Facts(step.kind, took_ms(frame))
        execution.note(Kind.WITHDRAWN, frame.position.id, write_body(fingerprint), facts)
    elif execution.sealed is None:
        execution.write([withdrawn(frame.position, fingerprint, step.kind)], Extras(accounts=accounts))


async def settle(
    execution: Execution, draft: Draft, *, is_early: bool = False, accounts: tuple[AccountOp, ...] = ()
) -> None:
    """Record an outcome of this branch; return when it may be delivered.

    That is once it is durable (unless early), and next in the delivery order.
    """
    if execution.sealed is not None:
        await execution.forever()
    # Several branches: the outcome gets its slot when it is written, so that replay finds the same order.
    extras = charging(accounts) if accounts else NO_EXTRAS
    if is_early or not execution.is_single:
        written = execution.write([draft], extras)
        await execution.delivery.settle(None if is_early else execution.durable(written))
        return
    appended = execution.append(draft, extras, is_single=True)
    if appended is None:  # committed on this thread, and no other code ran meanwhile
        if execution.sealed is not None:
            await execution.forever()
        return
    await execution.durable(appended)
    if not execution.is_single:
        # A second branch appeared meanwhile: its outcomes come after ours.
        await execution.delivery.settle(None, is_first=True)


def named(error: BaseException, execution: Execution, position: StepPosition) -> BaseException:
    """Return the error, with run and step noted on a NotSerializable."""
    if isinstance(error, NotSerializable):
        error.run, error.step = execution.run.id, position.id
    return error


async def attempt(
    execution: Execution,
    step: Step,
    frame: Frame,
    body: Body,
    branch: BranchTask | None = None,
    permit: Permit | None = None,
) -> Any:
    """Run the body until it returns a value or fails for good."""
    token, branch = FRAME.set(frame), branch or current_branch(execution.loop)
    enter_body(branch, execution)
    try:
        before = await attempts_before(frame) if execution.replay.intents else 0
        began = frame.at if not before else execution.loop.time()
        for attempt in count(before + 1):
            if permit is not None and attempt > 1:
                await gate.wait_between(frame, step, permit)
            frame.attempt = attempt
            frame.admitted_ms = execution.clock.boot_ms()
            # Before each attempt: after the lease's end another worker may run the same body.
            if frame.admitted_ms >= execution.lease.until_ms:
                await execution.require_lease()
                frame.admitted_ms = execution.clock.boot_ms()
            if (output := execution.output) is not None:
                output.begin(frame.position.id)
            try:
                if step.timeout_seconds is None:
                    return await body()
                async with asyncio.timeout(step.timeout_seconds):
                    return await body()
            # Our own errors are no failures of the body: a retry would not help.
            except NineLivesError:
                raise
            except BaseException as caught:  # noqa: BLE001 (a body may end in anything)
                error = caught if isinstance(caught, Exception) else failure_of(caught, frame)
                reason = reason_for(error, step.retry)
                pause = delay_seconds(
                    step.retry,
                    attempt,
                    reason,
                    retry_after=retry_after_seconds(error, time.time()),
                    jitter=random.random(),
                )
                if pause is None:
                    raise error  # noqa: B904 (it is the one caught, or has it as its cause)
                note_failure(frame, began, error)
                if permit is not None:
                    # Breakers count each attempt, and rates what it has sent.
                    requests = reservations.requests_of(frame)
                    reservations.ended(execution, step, permit.call, error, requests=requests)
                if execution.hooks is not None:
                    execution.hooks.attempt_failed(frame, error, pause, of=step.retry.attempts)
                await rest(frame, pause, error, of=step.retry.attempts)
                began = execution.loop.time()
    finally:
        # The timer of intents must not record the start of a body that has ended.
        frame.is_over = True
        leave_body(branch)
        try:  # noqa: SIM105 (contextlib.suppress would cost every step)
            FRAME.reset(token)
        except ValueError:  # the abandoned coroutine is garbage-collected in another context
            pass


def note_failure(frame: Frame, began: float, error: BaseException) -> None:
    """Note a failed attempt that another one follows; it is recorded with the outcome."""
    execution = execution_of(frame.position)
    took = max(0, int((execution.loop.time() - began) * 1000))
    failed = Attempt(execution.clock.now_ms() - took, took, error_text(error))
    frame.failures = (*frame.failures, failed)[-MOST_ATTEMPTS:]


def failure_of(error: BaseException, frame: Frame) -> Exception:
    """Return a Transient failure for a body that ended in CancelledError without being cancelled.

    Raises the error itself when the body was cancelled or closed, and when it is a SystemExit, a
    KeyboardInterrupt or a broken invariant. Raises any other BaseException as the error that replay raises.
    """
    execution = execution_of(frame.position)
    if isinstance(error, asyncio.CancelledError):
        task = asyncio.current_task(execution.loop)
        is_cancelled = task is None or task.cancelling() > frame.cancels
        if is_cancelled or execution.phase & (Phase.SEALED | Phase.LEAVING):
            raise error
        said = f": {error}" if str(error) else ""
        passing = Transient(f"{frame.position.name} ended in CancelledError{said}, and no code cancelled it")
        passing.__cause__ = error
        return passing
    if isinstance(error, InvariantViolation | SystemExit | KeyboardInterrupt):
        raise error
    if isinstance(error, GeneratorExit) and FRAME.get() is not frame:
        raise error  # the coroutine is closed or garbage-collected
    raise same_error(error) from error
