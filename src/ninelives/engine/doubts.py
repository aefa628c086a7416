"""What a body's end means, and what becomes of a start whose fate is unknown.

A start in doubt is settled by the rules of `core.settlement`: the probe is asked, again when it is too early
to believe it, and a person when it cannot tell. All that is waited for here is a durable wait. If we die
here, the next life finds the doubt in the journal, the question in the inbox, and goes on.
"""

from __future__ import annotations

import asyncio
import inspect
import random
import time
from contextvars import copy_context
from datetime import UTC, datetime
from functools import partial
from typing import Any

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from ninelives.core.answers import (
    MAY_ACT,
    STARTED_BY,
    Asked,
    Says,
    item_id,
    read_answer,
    write_asked,
    write_taken,
)
from ninelives.core.blobs import digest
from ninelives.core.errors import Corrupt, Divergence, InDoubt, InvariantViolation, NotDone, NotSerializable
from ninelives.core.inbox import Item, ItemKind, ItemState, NewItem
from ninelives.core.model import Kind, News
from ninelives.core.retry import PASSING, classify, delay_seconds, reason_for, retry_after_seconds
from ninelives.core.schema import schema_for
from ninelives.core.sessions import Fate, Session
from ninelives.core.settlement import (
    Happened,
    NotHappened,
    Ruling,
    StartBody,
    Unknown,
    advance,
    read_body_of_start,
    ripe_ms,
    rule,
)
from ninelives.engine.act import Act, Ended
from ninelives.engine.context import FRAME, Frame
from ninelives.engine.ticket import Draft
from ninelives.engine.waiting import wait

PROBE_SECONDS = 60.0
"""How long one probe may take, and for how long probes that fail are tried again before a person is asked."""
MOST_STARTS = 9
"""An action that was started so often and is said never to have happened goes to a person all the same."""
_FIRST_LOOK_MS = 1_000
_FIRST_PAUSE_MS, _LONGEST_PAUSE_MS = 500, 60_000
_REMEDY = (
    "Look where it would show. If it happened, say so, with its result; if it did not, it is "
    "started again; or let it fail"
)
_RESULT_REMEDY = "Look where it would show. Say that it happened, with its result; or let it fail"
_RECORDED = "a recorded value no longer fits its annotation: "
_ARGUMENTS = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


async def judge(act: Act, ended: asyncio.Task[Any], number: int) -> Ended | None:
    """Say what a body's end means: its value, nothing done, or a doubt."""
    limit = f"{act.effect.limit_ms / 1000:g} s"
    if not ended.done():
        act.keep(ended)
        await _doubt(act, number, f"it was not done within {limit}, and its body runs on", over=False)
        return None
    if ended.cancelled():
        await _doubt(act, number, f"it was not done within {limit}")
        return None
    error = ended.exception()
    if isinstance(error, NotDone):
        return await _void(act, number, error)
    if error is not None:
        await _doubt(act, number, f"it raised {type(error).__name__}: {error}"[:500])
        return None
    try:
        data = act.step.codec.round(ended.result())[0]
    except NotSerializable as bad:
        why = f"it happened, and its result cannot be kept: {bad}"[:500]
        await _doubt(act, number, why, lost=True)
        return None
    return Ended(data, keys=act.settles(data))


async def _doubt(
    act: Act, number: int, why: str, *, over: bool = True, lost: bool = False, item: str = "", given: str = ""
) -> None:
    """Record that a start is in doubt, with all that is needed to settle it."""
    start = act.standing.start or StartBody()
    await act.record(
        Kind.DOUBT,
        act.doubts(),
        n=number,
        w=start.w,
        l=start.l,
        b=start.b,
        t=act.execution.store.now_ms(),
        why=why,
        over=over,
        lost=lost,
        i=item,
        g=given,
    )


async def _void(act: Act, number: int, error: NotDone) -> Ended | None:
    """Record that nothing was done; try again if the policy says so."""
    why = f"{type(error).__name__}: {error}"[:500]
    pause = delay_seconds(
        act.step.retry,
        number + 1,
        reason_for(error, act.step.retry),
        retry_after=retry_after_seconds(error, time.time()),
        jitter=random.random(),
    )
    if pause is None:
        voided = act.draft(Kind.VOIDED, n=number, why=why)
        return Ended(error=error, before=(voided,), keys=act.releases())
    due_ms = act.execution.store.now_ms() + int(pause * 1000)
    await act.record(Kind.VOIDED, act.releases(), n=number, why=why, t=due_ms)
    return None


async def settle(act: Act) -> Ended | None:
    """Settle the start that is in doubt; None when it is voided, and another may be made."""
    start, doubt = act.standing.start, act.standing.doubt
    if start is None:
        raise InvariantViolation("nothing was started")
    if act.late is not None and act.late.done():
        late = act.late
        act.drop()
        ended = await judge(act, late, start.n)
        return ended and replace(ended, closes=(doubt.i,) if doubt is not None and doubt.i else ())
    session = await _session(act, start) if doubt is None or not doubt.over else None
    if doubt is None:
        await _doubt(act, start.n, _death(session, start), over=_fate(session) is Fate.GONE)
        return None
    if not doubt.over and _fate(session) is Fate.GONE:
        why = f"{doubt.why}; its process is gone now"
        await _doubt(act, start.n, why, lost=doubt.lost, item=doubt.i, given=doubt.g)
        return None
    fate = Fate.GONE if doubt.over else _fate(session)
    ripe = ripe_ms(start, fate, doubt.t, act.effect.settle_after_ms)
    if doubt.i and not doubt.g:
        return await _person(act, doubt, ripe)
    return await _probe(act, start, doubt, ripe)


# What is known ------------------------------------------------------------------------------------


def known(start: StartBody, doubt: StartBody) -> dict[str, Any]:
    """Return what a record of a doubt says: of the start, and what is known of its fate."""
    of_start = {"n": start.n, "w": start.w, "l": start.l, "b": start.b}
    told = {
        "t": doubt.t,
        "why": doubt.why,
        "over": doubt.over,
        "lost": doubt.lost,
        "i": doubt.i,
        "g": doubt.g,
    }
    return of_start | told


async def _session(act: Act, start: StartBody) -> Session | None:
    return await act.patiently(partial(act.execution.call_store, lambda store: store.read_session(start.w)))


def _fate(session: Session | None) -> Fate:
    return session.fate if session is not None else Fate.UNKNOWN


def _death(session: Session | None, start: StartBody) -> str:
    if session is None:
        return f"its worker {start.w!r} is not known any more"
    where = f"worker {session.id!r} (pid {session.pid} on {session.machine})"
    if session.ended_ms is None:
        return f"{where} left it without an outcome"
    note = f": {session.evidence.note}" if session.evidence is not None and session.evidence.note else ""
    return f"{where} {session.cause} at {_moment(session.ended_ms)}{note}"


def _moment(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds")


# The probe ----------------------------------------------------------------------------------------


async def _probe(act: Act, start: StartBody, doubt: StartBody, ripe: int | None) -> Ended | None:
    """Ask the probe, and do what the rules say."""
    asked_ms = act.execution.store.now_ms()
    give_up_ms = doubt.t + start.l + act.effect.settle_after_ms
    answer: object = Unknown("" if doubt.lost else "it declares no verify=")
    if doubt.lost or act.effect.verify is None:
        ruling = Ruling.PERSON
    else:
        answer = await _ask(act)
        patience_ms = (give_up_ms if ripe is None else ripe) + int(PROBE_SECONDS * 1000)
        fails = isinstance(answer, Exception) and asked_ms < patience_ms
        ruling = Ruling.WAIT if fails else rule(answer, asked_ms, ripe, give_up_ms)
    if ruling is Ruling.HAPPENED and isinstance(answer, Happened):
        return await _happened(act, start, doubt, answer.result)
    if ruling is Ruling.VOID and start.n + 1 < MOST_STARTS:
        why, due_ms = "verify says that it did not happen", asked_ms + _pause_ms(start.n)
        await act.record(Kind.VOIDED, act.releases(), n=start.n, why=why, t=due_ms)
        return None
    if ruling is Ruling.VOID:
        said = f"it did not happen; but it was started {start.n + 1} times, and never came to an end"
        return await _escalate(act, start, doubt, said)
    if ruling is Ruling.PERSON:
        return await _escalate(act, start, doubt, _said(answer))
    too_early = ripe is not None and asked_ms < ripe and not isinstance(answer, Exception)
    due_ms = ripe if ripe is not None and too_early else _next_look(asked_ms, doubt.t)
    if not doubt.over:  # that its process is gone may be proved at any moment, and what it did may show
        due_ms = min(due_ms, _next_look(asked_ms, doubt.t))
    await _rest(act, due_ms, "what became of it")
    return None


def _pause_ms(number: int) -> int:
    """Return how long to wait before an action is started again: not at all at first, then ever longer."""
    return min(_FIRST_PAUSE_MS << (number - 1), _LONGEST_PAUSE_MS) if number else 0


def _next_look(now_ms: int, since_ms: int) -> int:
    """Return when to look again: soon at first, then ever more rarely."""
    return now_ms + max(_FIRST_LOOK_MS, min(now_ms - since_ms, 60_000))


async def _rest(act: Act, due_ms: int | None, what: str) -> None:
    late = act.late

    def look(news: News) -> bool | None:
        over = (due_ms is not None and news.now_ms >= due_ms) or (late is not None and late.done())
        return True if over else None

    await act.patiently(
        lambda: wait(act.execution, f"to know of {act.step.name}: {what}", look, due_ms=due_ms), waits=True
    )


async def _ask(act: Act) -> object:
    """Ask the probe; an error that passes is returned, any other is an Unknown that says so."""
    context = copy_context()
    context.run(FRAME.set, Frame(act.place, act.asked))
    asking = asyncio.Task(_verify(act), loop=act.execution.loop, context=context)
    try:
        await act.patiently(lambda: asyncio.wait({asking}, timeout=PROBE_SECONDS))
    finally:
        asking.cancel()
    if not asking.done() or asking.cancelled():
        return TimeoutError(f"verify was not done within {PROBE_SECONDS:g} s")
    error = asking.exception()
    if isinstance(error, Exception) and classify(error) in PASSING:
        return error
    if error is not None:
        return Unknown(f"verify raised {type(error).__name__}: {error}"[:500])
    answer = asking.result()
    if isinstance(answer, Happened | NotHappened | Unknown):
        return answer
    return Unknown(f"verify returned {answer!r}, which is no Happened, NotHappened or Unknown"[:500])


async def _verify(act: Act) -> object:
    verify: Any = act.effect.verify
    kwargs = act.kwargs | ({"key": act.place.key()} if _takes_key(verify) else {})
    if inspect.iscoroutinefunction(inspect.unwrap(verify)):
        return await verify(*act.args, **kwargs)
    return await asyncio.to_thread(verify, *act.args, **kwargs)


def _takes_key(verify: Any) -> bool:
    parameters = inspect.signature(verify).parameters.values()
    return any(one.name == "key" or one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters)


def _said(answer: object) -> str:
    if isinstance(answer, Unknown):
        return answer.note
    if isinstance(answer, NotHappened):
        return "verify says that it did not happen, but it may still"
    return f"verify failed: {type(answer).__name__}: {answer}"[:500]


async def _happened(act: Act, start: StartBody, doubt: StartBody, result: object) -> Ended | None:
    try:
        data = act.step.codec.round(result)[0]
    except NotSerializable as bad:
        said = f"it happened, and verify's result cannot be kept: {bad}"
        return await _escalate(act, start, replace(doubt, lost=True), said)
    return Ended(data, keys=act.settles(data))


# A person -----------------------------------------------------------------------------------------


async def _escalate(
    act: Act, start: StartBody, doubt: StartBody, said: str, before: tuple[Draft, ...] = ()
) -> Ended | None:
    """Put the doubt before a person, or before the agent if that is what it declares."""
    execution, name = act.execution, act.step.name
    if act.effect.raises_doubt:
        why = "; ".join(part for part in (doubt.why, said) if part)
        return Ended(
            error=InDoubt(
                f"{name} may or may not have happened: {why}",
                run=execution.run.id,
                step=act.place.id,
                remedy="Find out what happened before you do anything that rests on it",
            ),
            before=before,
        )
    item = _item(act, start, doubt, said)
    asked = replace(doubt, i=item.id, g="")
    await act.record(Kind.DOUBT, act.doubts(), (item,), before, **known(start, asked))
    return None


def _item(act: Act, start: StartBody, doubt: StartBody, said: str) -> NewItem:
    evidence = {
        STARTED_BY: start.w,
        "start": str(start.n + 1),
        "in doubt since": _moment(doubt.t),
        "why": doubt.why,
        "verify": said,
        "given up before by": doubt.g,
        MAY_ACT: "no" if doubt.over else "yes, as far as is known",
    }
    what, remedy = f"Did {act.step.name} happen? {doubt.why}", _REMEDY
    if doubt.lost:
        what, remedy = f"What did {act.step.name} give? It happened. {doubt.why}", _RESULT_REMEDY
    body = write_asked(
        Asked(
            what=what[:1000],
            remedy=remedy,
            arguments=_ARGUMENTS(act.asked.arguments),
            key=act.place.key(),
            schema=schema_for(act.step.codec),
            evidence={name: text for name, text in evidence.items() if text},
            happened=doubt.lost,
        )
    )
    which = (act.execution.turn, act.place.id, start.n, doubt.t, doubt.i, said)
    asked = item_id(act.execution.run.id, *which)
    return NewItem(id=asked, kind=ItemKind.DOUBT, step=act.place.id, digest=digest(body)[:16], body=body)


async def _person(act: Act, doubt: StartBody, ripe: int | None) -> Ended | None:
    """Wait for a person's answer and take it."""
    start: StartBody = act.standing.start  # type: ignore[assignment]
    what = f"for a person: did {act.step.name} happen?"

    def look(news: News) -> Item | bool | None:
        if act.late is not None and act.late.done():
            return True
        mine = (item for item in news.items if item.id == doubt.i)
        return next((item for item in mine if item.state is not ItemState.OPEN), None)

    item = await act.patiently(lambda: wait(act.execution, what, look, for_person=True), waits=True)
    if not isinstance(item, Item):
        return None
    if item.state is ItemState.CLOSED:  # with the run, which goes on now
        return await _escalate(act, start, doubt, "nobody had answered when the run ended")
    return await _answered(act, start, doubt, item, ripe)


async def _answered(
    act: Act, start: StartBody, doubt: StartBody, item: Item, ripe: int | None
) -> Ended | None:
    answer = read_answer(item)
    taken = (Kind.ANSWER, act.place.id, write_taken(item))
    if answer.says is Says.HAPPENED:
        data = b"null" if answer.value is UNSET else bytes(answer.value)
        try:
            data = act.step.codec.round(act.step.codec.decode(data))[0]
        except (Corrupt, Divergence, NotSerializable) as bad:
            # That it happened stands; only its result is asked for again.
            why = bad.what.removeprefix(_RECORDED)
            said = f"{item.by} says that it happened, with a result that does not fit: {why}"
            return await _escalate(act, start, replace(doubt, lost=True), said, (taken,))
        return Ended(data, before=(taken,), keys=act.settles(data))
    if answer.says is Says.FAIL:
        return _given_up(act, start, doubt, item, taken)
    if doubt.lost:
        said = f"{item.by} says that it did not happen; but it did"
        return await _escalate(act, start, doubt, said, (taken,))
    now_ms = act.execution.store.now_ms()
    believed_ms = ripe if ripe is not None else doubt.t + start.l + act.effect.settle_after_ms
    if now_ms < believed_ms:
        # A person has looked; but what may still land could prove him wrong.
        await _rest(
            act, believed_ms if ripe is not None else _next_look(now_ms, doubt.t), "it may still land"
        )
        return None
    why = f"{item.by} says that it did not happen"
    await act.record(Kind.VOIDED, act.releases(), n=start.n, why=why, before=(taken,))
    return None


def _given_up(act: Act, start: StartBody, doubt: StartBody, item: Item, taken: Draft) -> Ended:
    """Fail with the doubt. The answer counts once: a run that is retried asks anew."""
    draft = act.draft(Kind.DOUBT, **known(start, replace(doubt, g=item.by)))
    act.standing = advance(act.standing, Kind.DOUBT, read_body_of_start(draft[2]))
    note = read_answer(item).note
    error = InDoubt(
        f"{act.step.name} may or may not have happened, and {item.by} gave it up"
        + (f", saying: {note}" if note else ""),
        run=act.execution.run.id,
        step=act.place.id,
    )
    return Ended(error=error, before=(taken, draft))
