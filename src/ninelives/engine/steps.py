"""A call of a step: found in the journal, or executed, recorded and then delivered.

If we die before the outcome is durable, the step is asked for again in the next life and its body runs
again under the same key; if we die after, it is found. Nobody learns of an outcome before it is durable
(strict), or before all that rests on it would be lost with it (pipelined).
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import count
from typing import Any

from ninelives.core.errors import Divergence, NineLivesError, NotSerializable, UsageError
from ninelives.core.failures import decode_error, encode_error, same_error
from ninelives.core.fingerprint import Fingerprint, fingerprint
from ninelives.core.model import Kind
from ninelives.core.replay import Recorded, check_arguments, write_body
from ninelives.core.retry import delay_seconds, reason_for, retry_after_seconds
from ninelives.engine.context import FRAME, Frame, Place, current
from ninelives.engine.execution import BranchTask, Execution
from ninelives.engine.registry import Step

Body = Callable[[], Awaitable[Any]]


async def call(step: Step, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a step that is `async def`."""
    execution = current(step.name)
    if execution is None or FRAME.get() is not None:
        # Without a runtime a step is an ordinary function; inside a step, another one is part of its body.
        return await step.function(*args, **kwargs)
    return await perform(execution, step, args, kwargs, lambda: step.function(*args, **kwargs))


async def perform(
    execution: Execution, step: Step, args: tuple[Any, ...], kwargs: dict[str, Any], body: Body
) -> Any:
    """Give the outcome of a step at its place in the run, executing its body only if there is none."""
    asked = fingerprint(step.signature, args, kwargs, ignore=step.ignore)
    place = execution.place(step.name)
    task = asyncio.current_task()
    if isinstance(task, BranchTask):
        task.foreign_timer = None
    try:
        return await _perform(execution, step, asked, place, body)
    except asyncio.CancelledError:
        if isinstance(task, BranchTask) and task.foreign_timer is not None and execution.sealed is None:
            raise UsageError(
                f"{task.foreign_timer} ended this step, and would not do so on replay",
                run=execution.run.id,
                step=place.id,
                remedy="Use nl.timeout: it records who won",
            ) from None
        raise


async def _perform(execution: Execution, step: Step, asked: Fingerprint, place: Place, body: Body) -> Any:
    await execution.require_open()
    found = execution.replay.take(place.id, [place.id_under(alias) for alias in step.aliases])
    if found is not None:
        return await _deliver_recorded(execution, step, asked, found)
    if execution.is_catching_up:
        await execution.delivery.fresh()
    if not _may_be_told_early(execution, step):
        await execution.barrier()
    await execution.require_open()
    return await _execute(execution, step, asked, place, body)


def _may_be_told_early(execution: Execution, step: Step) -> bool:
    return execution.is_pipelined and (step.is_decision or step.reads_only)


async def _deliver_recorded(execution: Execution, step: Step, asked: Fingerprint, found: Recorded) -> Any:
    try:
        check_arguments(found, asked, run=execution.run.id, where=step.where)
        if found.kind is Kind.WITHDRAWN:
            await execution.forever()  # the run's own code cancels it, as it did
        await execution.delivery.recorded(found.seq)
        execution.replayed += 1
        if found.kind is not Kind.FAILURE:
            return _value(step, bytes(found.body.v or b"null"), execution.run.id, found.step)
        failure = decode_error(bytes(found.body.e or b""), raises=step.raises)
    except Divergence as error:
        execution.seal(error)
        await execution.forever()
    raise failure


def _value(step: Step, data: bytes, run: str, at: str) -> Any:
    try:
        return step.codec.decode(data)
    except Divergence as error:
        if step.upgrade is None:
            error.run, error.step = run, at
            raise
        from ninelives.core.codec import UNTYPED_CODEC

        return step.codec.round(step.upgrade(UNTYPED_CODEC.decode(data)))[1]


async def _execute(execution: Execution, step: Step, asked: Fingerprint, place: Place, body: Body) -> Any:
    value, told, draft = await _outcome(execution, step, asked, place, body)
    await _settle(execution, step, draft)
    if told is not None:
        raise told
    execution.executed += 1
    return value


async def _outcome(
    execution: Execution, step: Step, asked: Fingerprint, place: Place, body: Body
) -> tuple[Any, BaseException | None, tuple[Kind, str, bytes]]:
    """Run the body: its value or its failure, and the record that says so.

    Raises CancelledError when the run's code withdrew the step meanwhile, whatever the body made of that.
    """
    started = execution.intents.start(partial(_write_intent, execution, asked, place))
    task = asyncio.current_task()
    cancels = task.cancelling() if task is not None else 0
    if isinstance(task, BranchTask):
        task.body_of = execution
    value, told = None, None
    try:
        try:
            data, value = step.codec.round(await _attempt(step, Frame(place), body))
            draft = (Kind.RESULT, place.id, write_body(asked, value=data))
        except Exception as error:  # noqa: BLE001 (a failure is an outcome: recorded, then raised again)
            told = same_error(_named(error, execution, place), step.raises)
            draft = (Kind.FAILURE, place.id, write_body(asked, error=encode_error(told, raises=step.raises)))
        if task is not None and task.cancelling() > cancels:
            raise asyncio.CancelledError  # noqa: TRY301 (the body swallowed it)
        if execution.output is not None:
            execution.output.settle(place.id, stands=told is None)
    except asyncio.CancelledError:
        if execution.output is not None:
            execution.output.settle(place.id, stands=False)
        execution.note(Kind.WITHDRAWN, place.id, write_body(asked))
        raise
    finally:
        started.is_over = True
        if isinstance(task, BranchTask):
            task.body_of = None
            execution.delivery.running.discard(task)
            execution.delivery.look()
    return value, told, draft


async def _settle(execution: Execution, step: Step, draft: tuple[Kind, str, bytes]) -> None:
    """Record an outcome, and wait for its turn to be told."""
    await execution.require_open()
    turn = execution.delivery.reserve()
    try:
        written = execution.write([draft])
        if not _may_be_told_early(execution, step):
            await execution.durable(written)
        await execution.delivery.live(turn)
    except BaseException:
        turn.withdraw()
        raise


def _named(error: Exception, execution: Execution, place: Place) -> Exception:
    if isinstance(error, NotSerializable):
        error.run, error.step = execution.run.id, place.id
    return error


def _write_intent(execution: Execution, asked: Fingerprint, place: Place) -> None:
    execution.note(Kind.INTENT, place.id, write_body(asked))


async def _attempt(step: Step, frame: Frame, body: Body) -> Any:
    """Run the body until it gives a value or fails for good."""
    token = FRAME.set(frame)
    try:
        for attempt in count(1):
            frame.attempt = attempt
            if (output := frame.place.execution.output) is not None:
                output.begin(frame.place.id)
            try:
                if step.timeout_seconds is None:
                    return await body()
                async with asyncio.timeout(step.timeout_seconds):
                    return await body()
            except NineLivesError:
                raise
            except Exception as error:
                reason = reason_for(error, step.retry)
                pause = delay_seconds(
                    step.retry,
                    attempt,
                    reason,
                    retry_after=retry_after_seconds(error, time.time()),
                    jitter=random.random(),
                )
                if pause is None:
                    raise
                await asyncio.sleep(pause)
    finally:
        FRAME.reset(token)
