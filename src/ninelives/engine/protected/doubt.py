"""Judge how a body ended, and settle a start whose outcome is unknown.

A start in doubt is settled by the rules of `core.journal.settlement`: the probe is called, again while it is
too early to believe it, and a person is asked when the probe does not know. All waits here are durable. If
we die here, the next worker finds the doubt in the journal and the question in the inbox, and continues.
"""

from __future__ import annotations

import asyncio
import inspect
import random
import time
from contextvars import copy_context
from functools import partial
from typing import Any

from msgspec.structs import replace

from ninelives.core.clock import boot_reading, moment_text
from ninelives.core.errors import InvariantViolation, NotDone, NotSerializable
from ninelives.core.journal.settlement import Happened, NotHappened, Ruling, StartBody, Unknown, ripe_ms, rule
from ninelives.core.model.run import Kind
from ninelives.core.model.session import Fate, Session
from ninelives.core.secret import masked_text
from ninelives.core.values.retry import PASSING, classify, delay_seconds, reason_for, retry_after_seconds
from ninelives.engine.context import FRAME, Frame
from ninelives.engine.protected import left_processes
from ninelives.engine.protected.doubt_inbox import (
    answer_of_person,
    clocks,
    escalate,
    next_check_ms,
    rest,
)
from ninelives.engine.protected.protected_call import Ended, ProtectedCall
from ninelives.engine.spec import callbacks
from ninelives.engine.step.threads import IN_ITS_OWN

PROBE_SECONDS = 60.0
"""The time limit of one probe, and how long failing probes are retried before a person is asked."""
MOST_STARTS = 9
"""After this many starts that `verify` says did not happen, the action escalates all the same."""
_FIRST_PAUSE_MS, _LONGEST_PAUSE_MS = 500, 60_000


async def judge(action: ProtectedCall, ended: asyncio.Task[Any], number: int) -> Ended | None:
    """Judge how a body ended: a value, nothing done, or a doubt; return None if there is no outcome yet."""
    limit = f"{action.effect.limit_ms / 1000:g} s"
    if not ended.done():
        action.keep_body(ended)
        await _doubt(action, number, f"it was not done within {limit}, and its body runs on", over=False)
        return None
    is_cut = action.frame is not None and action.frame.is_cut
    error = asyncio.CancelledError() if ended.cancelled() else ended.exception()
    # First: the body's own proof counts, however it was ended.
    if isinstance(error, NotDone):
        return await _void(action, number, error)
    if error is not None and is_cut:
        # Its task is over. What it started in a thread, a child process or another task may not be.
        await _doubt(action, number, f"it was not done within {limit} and was broken off", over=False)
        return None
    if error is not None:
        why = masked_text(f"it raised {type(error).__name__}: {error}")[:500]
        await _doubt(action, number, why, over=not _is_at_work(action))
        return None
    try:
        data = action.step.codec.round(ended.result())[0]
    except NotSerializable as bad:
        why = f"it happened, and its result cannot be kept: {bad}"[:500]
        await _doubt(action, number, why, lost=True)
        return None
    return Ended(data, keys=action.settles(data))


async def _doubt(
    action: ProtectedCall,
    number: int,
    why: str,
    *,
    over: bool = True,
    lost: bool = False,
    item: str = "",
    given: str = "",
) -> None:
    """Record that a start is in doubt, with everything needed to settle it."""
    start = action.standing.start or StartBody()
    boot, boot_ms = boot_reading(action.execution.clock)
    await action.record(
        Kind.DOUBT,
        action.doubts(),
        n=number,
        w=start.w,
        l=start.l,
        b=start.b,
        t=action.execution.store.now_ms(),
        why=why,
        over=over,
        lost=lost,
        i=item,
        g=given,
        boot=boot,
        boot_ms=boot_ms,
    )


async def _void(action: ProtectedCall, number: int, error: NotDone) -> Ended | None:
    """Record that nothing was done; return None if the retry policy allows another start."""
    why = masked_text(f"{type(error).__name__}: {error}")[:500]
    pause = delay_seconds(
        action.step.retry,
        number + 1,
        reason_for(error, action.step.retry),
        retry_after=retry_after_seconds(error, time.time()),
        jitter=random.random(),
    )
    if pause is None:
        voided = action.draft(Kind.VOIDED, n=number, why=why)
        return Ended(error=error, before=(voided,), keys=action.releases())
    if action.execution.hooks is not None and action.frame is not None:
        attempts = action.step.retry.attempts
        action.execution.hooks.attempt_failed(action.frame, error, pause, of=attempts)
    due_ms = action.execution.store.now_ms() + int(pause * 1000)
    await action.record(Kind.VOIDED, action.releases(), n=number, why=why, t=due_ms)
    return None


async def settle(action: ProtectedCall) -> Ended | None:
    """Take one step to settle the start in doubt; None: call again, or start again if it is voided."""
    start, doubt = action.standing.start, action.standing.doubt
    if start is None:
        raise InvariantViolation("nothing was started")
    if action.late_body is not None and action.late_body.done():
        late = action.late_body
        action.drop_body()
        ended = await judge(action, late, start.n)
        return ended and replace(ended, closes=(doubt.i,) if doubt is not None and doubt.i else ())
    # Once the start is known to be over, nothing about its process can change the answer.
    session = await _session(action, start) if doubt is None or not doubt.over else None
    fate, is_bounded = (
        await _fate(action, session, start) if doubt is None or not doubt.over else (Fate.GONE, True)
    )
    # On record before anything is asked: `settle_after` counts from here, also after another crash.
    if doubt is None:
        await _doubt(action, start.n, _death(session, start), over=fate is Fate.GONE)
        return None
    if not doubt.over and (fate is Fate.GONE or _is_over_by_itself(action)):
        why = f"{doubt.why}; {'its process' if fate is Fate.GONE else 'what it had begun'} is gone now"
        await _doubt(action, start.n, why, lost=doubt.lost, item=doubt.i, given=doubt.g)
        return None
    ripe = ripe_ms(replace(start, b=is_bounded), fate, doubt.t, action.effect.settle_after_ms)
    # An answer that gave it up counted once: a retried run asks the probe, and then a person, again.
    if doubt.i and not doubt.g:
        return await answer_of_person(action, doubt, ripe)
    return await _probe(action, start, doubt, ripe)


# What is known ------------------------------------------------------------------------------------


async def _session(action: ProtectedCall, start: StartBody) -> Session | None:
    return await action.despite_cancellation(
        partial(action.execution.call_store, lambda store: store.read_session(start.w))
    )


async def _fate(action: ProtectedCall, session: Session | None, start: StartBody) -> tuple[Fate, bool]:
    clock = action.execution.clock
    return await action.despite_cancellation(
        lambda: asyncio.to_thread(left_processes.fate_of, session, start, clock)
    )


def _is_at_work(action: ProtectedCall) -> bool:
    return action.frame is not None and left_processes.is_at_work(action.frame)


def _is_over_by_itself(action: ProtectedCall) -> bool:
    """Return whether a body of this execution raised by itself, and all that it started is over now."""
    is_ours = action.frame is not None and action.frame.is_over and not action.frame.is_cut
    return is_ours and action.late_body is None and not _is_at_work(action)


def _death(session: Session | None, start: StartBody) -> str:
    if session is None:
        return f"its worker {start.w!r} is not known any more"
    where = f"worker {session.id!r} (pid {session.pid} on {session.machine})"
    if session.ended_ms is None:
        return f"{where} left it without an outcome"
    note = f": {session.evidence.note}" if session.evidence is not None and session.evidence.note else ""
    return f"{where} {session.cause} at {moment_text(session.ended_ms)}{note}"


# The probe ----------------------------------------------------------------------------------------


async def _probe(action: ProtectedCall, start: StartBody, doubt: StartBody, ripe: int | None) -> Ended | None:
    """Call the probe and apply the settlement rules to its answer."""
    now_ms, judged_ms = clocks(action, doubt)
    give_up_ms = doubt.t + start.l + action.effect.settle_after_ms
    answer: object = Unknown("" if doubt.lost else "it declares no verify=")
    if doubt.lost or action.effect.verify is None:
        ruling = Ruling.PERSON
    else:
        # CRASH: the probe has answered and nothing of that is on record: the next worker calls it again.
        answer = await ask_probe(action)
        patience_ms = (give_up_ms if ripe is None else ripe) + int(PROBE_SECONDS * 1000)
        fails = isinstance(answer, Exception) and judged_ms < patience_ms
        ruling = Ruling.WAIT if fails else rule(answer, judged_ms, ripe, give_up_ms)
    if ruling is Ruling.HAPPENED and isinstance(answer, Happened):
        return await _happened(action, start, doubt, answer.result)
    if ruling is Ruling.VOID and start.n + 1 < MOST_STARTS:
        why, due_ms = "verify says that it did not happen", now_ms + _pause_ms(start.n)
        await action.record(Kind.VOIDED, action.releases(), n=start.n, why=why, t=due_ms)
        return None
    if ruling is Ruling.VOID:
        # A probe that cannot see the effect would start it again and again.
        said = f"it did not happen; but it was started {start.n + 1} times, and never came to an end"
        return await escalate(action, start, doubt, said)
    if ruling is Ruling.PERSON:
        return await escalate(action, start, doubt, said_by(answer))
    too_early = ripe is not None and judged_ms < ripe and not isinstance(answer, Exception)
    due_ms = ripe if ripe is not None and too_early else next_check_ms(judged_ms, doubt.t)
    if not doubt.over:  # at any moment its process may prove to be gone, or its effect may become visible
        due_ms = min(due_ms, next_check_ms(judged_ms, doubt.t))
    # Back from the judged time to the store's clock, by which waits are timed.
    await rest(action, due_ms + now_ms - judged_ms, "what became of it")
    return None


def _pause_ms(number: int) -> int:
    """Return the pause before an action is started again: none at first, then doubling up to a minute."""
    return min(_FIRST_PAUSE_MS << (number - 1), _LONGEST_PAUSE_MS) if number else 0


async def _happened(
    action: ProtectedCall, start: StartBody, doubt: StartBody, result: object
) -> Ended | None:
    try:
        data = action.step.codec.round(result)[0]
    except NotSerializable as bad:
        said = f"it happened, and verify's result cannot be kept: {bad}"
        return await escalate(action, start, replace(doubt, lost=True), said)
    return Ended(data, keys=action.settles(data))


async def ask_probe(action: ProtectedCall) -> object:
    """Call the probe; return its answer, a retryable error as it is, any other error as an Unknown."""
    context = copy_context()
    context.run(FRAME.set, Frame(action.position, action.fingerprint))
    # A probe that hangs in a thread must not keep the process from exiting.
    context.run(IN_ITS_OWN.set, True)
    # In a frame of its own: steps inside `verify` are part of it, and `nl.key()` is the action's.
    probe = asyncio.Task(_verify(action), loop=action.execution.loop, context=context)
    try:
        await action.despite_cancellation(lambda: asyncio.wait({probe}, timeout=PROBE_SECONDS))
    finally:
        probe.cancel()
    if not probe.done() or probe.cancelled():
        return TimeoutError(f"verify was not done within {PROBE_SECONDS:g} s")
    error = probe.exception()
    if isinstance(error, Exception) and classify(error) in PASSING:
        return error
    if isinstance(error, callbacks.Unruly):
        return Unknown(masked_text(str(error))[:500])
    if error is not None:
        return Unknown(masked_text(f"verify raised {type(error).__name__}: {error}")[:500])
    answer = probe.result()
    if isinstance(answer, Happened | NotHappened | Unknown):
        return answer
    return Unknown(f"verify returned {answer!r}, which is no Happened, NotHappened or Unknown"[:500])


async def _verify(action: ProtectedCall) -> object:
    verify: Any = action.effect.verify
    kwargs = action.kwargs | ({"key": action.position.key()} if _takes_key(verify) else {})
    return await callbacks.call("verify", verify, *action.args, **kwargs)


def _takes_key(verify: Any) -> bool:
    parameters = inspect.signature(verify).parameters.values()
    return any(one.name == "key" or one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters)


def said_by(answer: object) -> str:
    """Return what the probe said, for a person."""
    if isinstance(answer, Unknown):
        return masked_text(answer.note)
    if isinstance(answer, NotHappened):
        return "verify says that it did not happen, but it may still"
    return masked_text(f"verify failed: {type(answer).__name__}: {answer}")[:500]
