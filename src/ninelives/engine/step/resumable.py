"""A call of a step: found in the journal, or executed, recorded and then delivered.

If we die before the outcome is durable, the step is asked for again in the next life and its body runs
again under the same key; if we die after, it is found. Nobody learns of an outcome before it is durable
(strict), or before all that rests on it would be lost with it (pipelined).
"""

from __future__ import annotations

import asyncio
import random
import time
from asyncio import get_running_loop
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Any

from ninelives.core.errors import (
    Divergence,
    InvariantViolation,
    NineLivesError,
    NotSerializable,
    Transient,
    UsageError,
)
from ninelives.core.journal.replay import Attempt, Recorded, write_body
from ninelives.core.model.commit import Verdict
from ninelives.core.model.run import Kind, StepKind
from ninelives.core.model.totals import Facts, error_text
from ninelives.core.values.exceptions import decode_error, encode_error, same_error
from ninelives.core.values.fingerprint import Fingerprint
from ninelives.core.values.retry import delay_seconds, reason_for, retry_after_seconds
from ninelives.core.values.token_usage import usage_in
from ninelives.engine.commit.ticket import Draft
from ninelives.engine.context import BRANCH, FRAME, Frame, StepPosition
from ninelives.engine.run import cancelled_steps, identity, lookup
from ninelives.engine.run.call_site import asks, caller
from ninelives.engine.run.current import current, execution_of
from ninelives.engine.run.delivery import Slot
from ninelives.engine.run.execution import BranchTask, Execution
from ninelives.engine.run.lookup import StepLookup
from ninelives.engine.run.waits import turn_away
from ninelives.engine.spec import argument_changes
from ninelives.engine.spec.callbacks import call_plain
from ninelives.engine.spec.registry import Step
from ninelives.engine.step import approval, other_loops
from ninelives.engine.step.retry_pause import attempts_before, rest

Body = Callable[[], Awaitable[Any]]
MOST_ATTEMPTS = 20
"""How many failed attempts are recorded with an outcome: the last ones."""


async def call(step: Step, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a step that is `async def`."""
    execution = current(step.name)
    if execution is None or FRAME.get() is not None:
        # Without a runtime a step is an ordinary function; inside a step, another one is part of its body.
        refuse_inside(execution, step)
        return await step.function(*args, **kwargs)
    if get_running_loop() is not execution.loop:
        return await other_loops.ask(execution, step, args, kwargs, perform)
    return await perform(execution, step, args, kwargs, lambda: step.function(*args, **kwargs))


def refuse_inside(execution: Execution | None, step: Step) -> None:
    """Refuse inside a step what cannot be a part of its body. Raises UsageError."""
    if execution is not None and (step.approval is not None or step.is_transactional):
        why = "needs a person's approval" if step.approval is not None else "has a transaction of its own"
        raise UsageError(
            f"{step.name} {why} and cannot be carried out inside another step",
            run=execution.run.id,
            remedy="Call it from the agent",
        )


async def perform(  # noqa: PLR0912 (the hot path: a coroutine less)
    execution: Execution, step: Step, args: tuple[Any, ...], kwargs: dict[str, Any], body: Body
) -> Any:
    """Give the outcome of a step at its place in the run, executing its body only if there is none."""
    asked = step.fingerprint(args, kwargs, execution.lists)
    given = step.given(args, kwargs) if step.given is not None else None
    place = StepPosition(execution, BRANCH.get(), step.name, given)
    if given is not None:
        identity.take_id(execution, place, asks(step))
    task = asyncio.current_task(execution.loop)
    branch = task if isinstance(task, BranchTask) else None
    if branch is not None:
        branch.foreign_timer = None
    is_awaited = False
    try:
        if execution.closed is not None:
            await turn_away(execution)
        if execution.is_resumed and not identity.is_past(execution, place):
            found = identity.at_place(execution, place, asked) or await _recall(
                execution, step, asked, place, given
            )
            if found is not None:
                return await _deliver_recorded(execution, step, found)
            is_awaited = identity.hold_up(execution, step)
        is_early = execution.is_pipelined and (step.is_decision or step.reads_only)
        if not is_early:
            # In a rehearsal, the end: whatever could be seen comes after it.
            await execution.barrier(is_read=step.is_decision or step.reads_only)
        if execution.closed is not None:
            await turn_away(execution)
        if step.approval is not None:
            await approval.obtain(execution, step, asked, place, args, kwargs, place.key())
        if not step.reads_only:
            execution.tail.effect_length = execution.tail.length
        value = await execute(execution, step, asked, place, body, is_early=is_early)
    except asyncio.CancelledError:
        if branch is not None and branch.foreign_timer is not None and execution.sealed is None:
            raise foreign(branch.foreign_timer, place) from None
        raise
    finally:
        if is_awaited:
            identity.let_go(execution)
    if step.looks.left:
        argument_changes.look(step, args, kwargs, asked, execution.run.id)
    return value


def foreign(timer: str, place: StepPosition) -> UsageError:
    """Return the error for a step that a timer ended which replay cannot repeat."""
    return UsageError(
        f"{timer} ended this step, and would not do so on replay",
        run=place.execution.run.id,
        step=place.id,
        remedy="Use nl.timeout: it records who won",
    )


def withdrawn(place: StepPosition, asked: Fingerprint, kind: StepKind = StepKind.ACTION) -> Draft:
    """Return the record of a step that the run's code has cancelled."""
    return (Kind.WITHDRAWN, place.id, write_body(asked), (), Facts(kind))


def took_ms(frame: Frame) -> int:
    """Return how long ago a body began."""
    return int((frame.place.execution.loop.time() - frame.at) * 1000)


def result(frame: Frame, data: bytes) -> Draft:
    """Return the record of a step's value."""
    kind, place = frame.kind, frame.place
    usage = usage_in(data) if kind is StepKind.DECISION else None
    if usage is None and not frame.failures:  # the hot path
        took = int((place.execution.loop.time() - frame.at) * 1000)
        return (Kind.RESULT, place.id, write_body(frame.asked, value=data), (), Facts(kind, took))
    body = write_body(frame.asked, value=data, attempts=frame.failures, usage=usage)
    read, written = (usage.tokens_in, usage.tokens_out) if usage is not None else (0, 0)
    return (Kind.RESULT, place.id, body, (), Facts(kind, took_ms(frame), read, written))


def failure(frame: Frame, error: BaseException, encoded: bytes) -> Draft:
    """Return the record of a step's failure."""
    body = write_body(frame.asked, error=encoded, attempts=frame.failures)
    facts = Facts(frame.kind, took_ms(frame), error=error_text(error))
    return (Kind.FAILURE, frame.place.id, body, (), facts)


async def _recall(
    execution: Execution, step: Step, asked: Fingerprint, place: StepPosition, given: str | None
) -> Recorded | None:
    """Return what earlier lives recorded of a step; None when its body may start, now."""
    is_effect = lookup.is_effect_step(step)
    asking = StepLookup(
        execution,
        place,
        asked,
        where=lambda: asks(step),
        aliases=step.aliases,
        is_effect=is_effect,
        given=given,
    )
    found = await identity.find(asking)
    return found if isinstance(found, Recorded) else None


async def _deliver_recorded(execution: Execution, step: Step, found: Recorded) -> Any:
    try:
        if found.kind is Kind.WITHDRAWN:
            await cancelled_steps.withdrawn(execution, found)
        await execution.delivery.recorded(found.seq, found.at_ms)
        execution.count(step, found)
        if found.kind is not Kind.FAILURE:
            return recorded_value(step, bytes(found.body.v or b"null"), execution.run.id, found.step)
        failure = decode_error(bytes(found.body.e or b""), raises=step.raises)
    except Divergence as error:
        execution.seal(error)
        await execution.forever()
    raise failure


def recorded_value(step: Step, data: bytes, run: str, at: str) -> Any:
    """Return a value that was recorded.

    Raises Divergence when it no longer fits its annotation.
    """
    try:
        # With upgrade= a value that its class refuses is an old one, to be mapped.
        return step.codec.recall(data) if step.upgrade is None else step.codec.decode(data)
    except Divergence as error:
        if step.upgrade is None:
            error.run, error.step = run, at
            error.what += f", asked for at {caller() or step.where}"
            raise
        from ninelives.core.values.codec import UNTYPED_CODEC

        return step.codec.round(call_plain("upgrade=", step.upgrade, UNTYPED_CODEC.decode(data)))[1]


async def execute(
    execution: Execution,
    step: Step,
    asked: Fingerprint,
    place: StepPosition,
    body: Body,
    *,
    is_early: bool = False,
) -> Any:
    """Run the body, record its value or its failure, and deliver it in its turn, once it is durable.

    `is_early`: it may be delivered before it is durable.

    Raises CancelledError when the run's code withdrew the step meanwhile, whatever the body made of that.
    """
    frame = Frame(place, asked, step.kind)
    execution.intents.start(frame)
    task = asyncio.current_task(execution.loop)
    branch = task if isinstance(task, BranchTask) else None
    frame.cancels = cancels = task.cancelling() if task is not None else 0
    if branch is not None:
        branch.body_of = execution
    value, told = None, None
    try:
        try:
            data, value = step.codec.round(await attempt(step, frame, body))
            draft = result(frame, data)
        except (Exception, SystemExit, KeyboardInterrupt) as error:  # noqa: BLE001 (a failure is an outcome)
            told = same_error(named(error, execution, place), step.raises)
            draft = failure(frame, told, encode_error(told, raises=step.raises))
        if task is not None and task.cancelling() > cancels:
            raise asyncio.CancelledError  # noqa: TRY301 (the body swallowed it)
        if execution.output is not None:
            execution.output.settle(place.id, stands=told is None)
    except asyncio.CancelledError:
        if execution.output is not None:
            execution.output.settle(place.id, stands=False)
        execution.note(Kind.WITHDRAWN, place.id, write_body(asked), Facts(step.kind, took_ms(frame)))
        raise
    finally:
        frame.is_over = True
        if branch is not None:
            branch.body_of = None
            execution.delivery.is_out(branch)
    try:
        await settle(execution, draft, is_early=is_early)
    except asyncio.CancelledError:  # on record and not told: on replay it is not told either
        execution.note(Kind.WITHDRAWN, place.id, write_body(asked), Facts(step.kind, took_ms(frame)))
        raise
    if told is not None:
        raise told
    execution.executed += 1
    return value


async def settle(execution: Execution, draft: Draft, *, is_early: bool = False) -> None:
    """Record an outcome of this branch; return when it may be told: durable (unless early), and its turn."""
    if execution.sealed is not None:
        await execution.forever()
    if is_early or not execution.is_alone:
        turn = execution.delivery.reserve()
        written = execution.write([draft])
        await _tell(execution, turn, None if is_early else written)
        return
    appended = execution.append(draft, is_alone=True)
    if appended is None:  # committed here, and nobody else has run meanwhile
        if execution.sealed is not None:
            await execution.forever()
        return
    await execution.durable(appended)
    if not execution.is_alone:
        # Another branch has come meanwhile: its turn is after ours.
        await _tell(execution, execution.delivery.reserve_first(), None)


async def _tell(execution: Execution, turn: Slot, written: asyncio.Future[Verdict] | None) -> None:
    """Wait until something written is durable, if it must be, and until it is its turn to be told."""
    try:
        if written is not None:
            await execution.durable(written)
        await execution.delivery.live(turn)
    except BaseException:
        turn.withdraw()
        raise


def named(error: BaseException, execution: Execution, place: StepPosition) -> BaseException:
    """Return an error that says where it happened."""
    if isinstance(error, NotSerializable):
        error.run, error.step = execution.run.id, place.id
    return error


async def attempt(step: Step, frame: Frame, body: Body) -> Any:
    """Run the body until it gives a value or fails for good."""
    token, execution = FRAME.set(frame), execution_of(frame.place)
    try:
        before = await attempts_before(frame) if execution.replay.intents else 0
        began = frame.at if not before else execution.loop.time()
        for attempt in count(before + 1):
            frame.attempt = attempt
            frame.admitted_ms = execution.clock.boot_ms()
            if frame.admitted_ms >= execution.lease.until_ms:
                await execution.require_lease()
                frame.admitted_ms = execution.clock.boot_ms()
            if (output := execution.output) is not None:
                output.begin(frame.place.id)
            try:
                if step.timeout_seconds is None:
                    return await body()
                async with asyncio.timeout(step.timeout_seconds):
                    return await body()
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
                await rest(frame, pause, error, of=step.retry.attempts)
                began = execution.loop.time()
    finally:
        try:  # noqa: SIM105 (what suppresses it would cost every step)
            FRAME.reset(token)
        except ValueError:  # thrown away where it was left behind: that is no context of ours
            pass


def note_failure(frame: Frame, began: float, error: BaseException) -> None:
    """Note an attempt that failed and is followed by another: it is recorded with the outcome."""
    execution = execution_of(frame.place)
    took = max(0, int((execution.loop.time() - began) * 1000))
    failed = Attempt(execution.clock.now_ms() - took, took, error_text(error))
    frame.failures = (*frame.failures, failed)[-MOST_ATTEMPTS:]


def failure_of(error: BaseException, frame: Frame) -> Exception:
    """Return the passing failure of a body that ended in a cancellation which nobody had asked for.

    Raises what is another failure of the body, and the error itself when it is none: we are told to leave,
    or an invariant is broken.
    """
    execution = execution_of(frame.place)
    if isinstance(error, asyncio.CancelledError):
        task = asyncio.current_task(execution.loop)
        is_asked = task is None or task.cancelling() > frame.cancels
        if is_asked or execution.is_leaving or execution.sealed is not None:
            raise error
        said = f": {error}" if str(error) else ""
        failure = Transient(f"{frame.place.name} ended in CancelledError{said}, and nobody had cancelled it")
        failure.__cause__ = error
        return failure
    if isinstance(error, InvariantViolation | SystemExit | KeyboardInterrupt):
        raise error
    if isinstance(error, GeneratorExit) and FRAME.get() is not frame:
        raise error  # somebody throws the coroutine away
    raise same_error(error) from error
