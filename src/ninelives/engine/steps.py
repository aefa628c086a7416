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

from ninelives.core.errors import Divergence, InvariantViolation, NineLivesError, NotSerializable, UsageError
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
    await execution.require_open()
    asked = fingerprint(step.signature, args, kwargs, ignore=step.ignore)
    place = execution.place(step.name)
    found = execution.replay.take(place.id, [place.id_under(alias) for alias in step.aliases])
    if found is not None:
        return await _deliver_recorded(execution, step, asked, found)
    if execution.is_catching_up:
        await execution.delivery.fresh()
    if not (execution.is_pipelined and (step.is_decision or step.reads_only)):
        await execution.barrier()
    await execution.require_open()
    return await _execute(execution, step, asked, place, body)


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
    frame = Frame(place)
    started = execution.intents.start(partial(_write_intent, execution, asked, place))
    try:
        value = await _attempt(step, frame, body)
        data, value = step.codec.round(value)
    except asyncio.CancelledError:
        raise _cancelled(execution, asked, place) from None
    except InvariantViolation:
        raise
    except Exception as error:  # a step's failure is an outcome: recorded, then raised again
        told = same_error(_named(error, execution, place), step.raises)
        data = write_body(asked, error=encode_error(told, raises=step.raises))
        await _settle(execution, step, (Kind.FAILURE, place.id, data), asked, place)
        raise told from error
    finally:
        started.is_over = True
    execution.executed += 1
    await _settle(execution, step, (Kind.RESULT, place.id, write_body(asked, value=data)), asked, place)
    return value


async def _settle(
    execution: Execution, step: Step, draft: tuple[Kind, str, bytes], asked: Fingerprint, place: Place
) -> None:
    """Record an outcome, and wait for its turn to be told."""
    if execution.sealed is not None:
        await execution.forever()
    written = execution.write([draft])
    try:
        if not (execution.is_pipelined and (step.is_decision or step.reads_only)):
            await execution.durable(written)
        await execution.delivery.live()
    except asyncio.CancelledError:
        raise _cancelled(execution, asked, place, is_recorded=True) from None


def _cancelled(
    execution: Execution, asked: Fingerprint, place: Place, *, is_recorded: bool = False
) -> BaseException:
    """Record that the run's own code withdrew a step; refuse the timers that replay cannot repeat."""
    task = asyncio.current_task()
    if isinstance(task, BranchTask) and task.foreign_timer is not None and execution.sealed is None:
        timer, task.foreign_timer = task.foreign_timer, None
        return UsageError(
            f"{timer} ended this step, and would not do so on replay",
            run=execution.run.id,
            step=place.id,
            remedy="Use nl.timeout: it records who won",
        )
    if not is_recorded and execution.sealed is None:
        execution.note(Kind.WITHDRAWN, place.id, write_body(asked))
    return asyncio.CancelledError()


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
