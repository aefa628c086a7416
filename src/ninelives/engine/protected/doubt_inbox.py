"""Ask a person, through the inbox, what became of an action in doubt, and apply the answer.

If we die here, the next worker finds the doubt in the journal and the question in the inbox, and
continues.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from ninelives.core.clock import boot_reading, moment_text
from ninelives.core.errors import Corrupt, Divergence, InDoubt, NotSerializable
from ninelives.core.journal.answers import (
    MAY_ACT,
    STARTED_BY,
    ItemBody,
    Says,
    item_id,
    read_answer,
    write_item_body,
    write_taken,
)
from ninelives.core.journal.settlement import StartBody, advance, believed_ms, read_body_of_start
from ninelives.core.model.inbox import Item, ItemKind, ItemState, NewItem
from ninelives.core.model.run import Kind, News
from ninelives.core.values.blobs import digest
from ninelives.core.values.json_schema import schema_for
from ninelives.engine.commit.ticket import Draft
from ninelives.engine.protected.protected_call import Ended, ProtectedCall
from ninelives.engine.run.waits import wait

_FIRST_CHECK_MS = 1_000
_REMEDY = (
    "Check where its effect would show. If it happened, answer so, with its result; if it did not, it is "
    "started again; or let it fail"
)
_LEFT_REMEDY = (
    "The code no longer calls it, and nothing is started. Check where its effect would show, and answer "
    "whether it happened"
)
_RESULT_REMEDY = "Check where its effect would show. Answer that it happened, with its result; or let it fail"
_RECORDED = "a recorded value no longer fits its annotation: "
_ARGUMENTS = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


async def escalate(
    action: ProtectedCall, start: StartBody, doubt: StartBody, said: str, before: tuple[Draft, ...] = ()
) -> Ended | None:
    """Open an inbox item for the doubt; with `in_doubt="raise"`, return InDoubt for the agent instead."""
    execution, name = action.execution, action.step.name
    if action.effect.raises_doubt:
        why = "; ".join(part for part in (doubt.why, said) if part)
        return Ended(
            error=InDoubt(
                f"{name} may or may not have happened: {why}",
                run=execution.run.id,
                step=action.position.id,
                remedy="Find out what happened before you do anything that rests on it",
            ),
            before=before,
        )
    item = _item(action, start, doubt, said)
    escalated = replace(doubt, i=item.id, g="")
    await action.record(Kind.DOUBT, action.doubts(), (item,), before, **known(start, escalated))
    return None


def _item(action: ProtectedCall, start: StartBody, doubt: StartBody, said: str) -> NewItem:
    evidence = {
        STARTED_BY: start.w,
        "start": str(start.n + 1),
        "in doubt since": moment_text(doubt.t),
        "why": doubt.why,
        "verify": said,
        "given up before by": doubt.g,
        MAY_ACT: "no" if doubt.over else "yes, as far as is known",
    }
    what, remedy = (
        f"Did {action.step.name} happen? {doubt.why}",
        _REMEDY if action.is_wanted else _LEFT_REMEDY,
    )
    if doubt.lost:
        what, remedy = f"What did {action.step.name} give? It happened. {doubt.why}", _RESULT_REMEDY
    body = write_item_body(
        ItemBody(
            what=what[:1000],
            remedy=remedy,
            arguments=_ARGUMENTS(action.fingerprint.arguments),
            key=action.position.key(),
            schema=schema_for(action.step.codec),
            evidence={name: text for name, text in evidence.items() if text},
            happened=doubt.lost,
        )
    )
    which = (action.execution.turn, action.position.id, start.n, doubt.t, doubt.i, said)
    return NewItem(
        id=item_id(action.execution.run.id, *which),
        kind=ItemKind.DOUBT,
        step=action.position.id,
        digest=digest(body)[:16],
        body=body,
    )


async def answer_of_person(action: ProtectedCall, doubt: StartBody, ripe: int | None) -> Ended | None:
    """Wait for a person's answer and apply it; return None if there is no outcome yet."""
    start: StartBody = action.standing.start  # type: ignore[assignment]
    what = f"for a person: did {action.step.name} happen?"

    def check(news: News) -> Item | bool | None:
        # The body's own outcome is worth more than an answer about it.
        if action.late_body is not None and action.late_body.done():
            return True
        mine = (item for item in news.items if item.id == doubt.i)
        return next((item for item in mine if item.state is not ItemState.OPEN), None)

    item = await action.despite_cancellation(
        lambda: wait(action.execution, what, check, for_person=True), waits=True
    )
    if not isinstance(item, Item):
        return None
    if item.state is ItemState.CLOSED:  # closed when the run ended; the run continues now
        return await escalate(action, start, doubt, "no person had answered when the run ended")
    return await _take(action, start, doubt, item, ripe)


async def _take(
    action: ProtectedCall, start: StartBody, doubt: StartBody, item: Item, ripe: int | None
) -> Ended | None:
    # CRASH: the doubt is answered, and the answer not taken: the next worker finds it and takes it.
    answer = read_answer(item)
    taken = (Kind.ANSWER, action.position.id, write_taken(item))
    if answer.says is Says.HAPPENED:
        data = b"null" if answer.value is UNSET else bytes(answer.value)
        try:
            data = action.step.codec.round(action.step.codec.decode(data))[0]
        except (Corrupt, Divergence, NotSerializable) as bad:
            # It did happen: that part of the answer stands, only the result is asked for again.
            why = bad.what.removeprefix(_RECORDED)
            said = f"{item.by} says that it happened, with a result that does not fit: {why}"
            return await escalate(action, start, replace(doubt, lost=True), said, (taken,))
        return Ended(data, before=(taken,), keys=action.settles(data))
    if answer.says is Says.FAIL:
        return _given_up(action, start, doubt, item, taken)
    if doubt.lost:
        said = f"{item.by} says that it did not happen; but it did"
        return await escalate(action, start, doubt, said, (taken,))
    now_ms, judged_ms = clocks(action, doubt)
    at_ms = ripe if ripe is not None else doubt.t + start.l + action.effect.settle_after_ms
    if judged_ms < at_ms:
        # A person has checked; but an effect that may still land could prove the answer wrong.
        due_ms = at_ms if ripe is not None else next_check_ms(judged_ms, doubt.t)
        await rest(action, due_ms + now_ms - judged_ms, "it may still land")
        return None
    why = f"{item.by} says that it did not happen"
    await action.record(Kind.VOIDED, action.releases(), n=start.n, why=why, before=(taken,))
    return None


def _given_up(action: ProtectedCall, start: StartBody, doubt: StartBody, item: Item, taken: Draft) -> Ended:
    """Fail with the doubt. The answer counts once: a retried run asks again."""
    draft = action.draft(Kind.DOUBT, **known(start, replace(doubt, g=item.by)))
    # Here, since the draft travels with the failure and not by
    # `record`: a later call with the same key must find the doubt.
    action.standing = advance(action.standing, Kind.DOUBT, read_body_of_start(draft[2]))
    note = read_answer(item).note
    error = InDoubt(
        f"{action.step.name} may or may not have happened, and {item.by} gave it up"
        + (f", saying: {note}" if note else ""),
        run=action.execution.run.id,
        step=action.position.id,
    )
    return Ended(error=error, before=(taken, draft))


def known(start: StartBody, doubt: StartBody) -> dict[str, Any]:
    """Return the fields of a doubt's record: those of its start, and what is known of its outcome."""
    of_start = {"n": start.n, "w": start.w, "l": start.l, "b": start.b}
    of_outcome = {
        "t": doubt.t,
        "why": doubt.why,
        "over": doubt.over,
        "lost": doubt.lost,
        "i": doubt.i,
        "g": doubt.g,
        "boot": doubt.boot,
        "boot_ms": doubt.boot_ms,
    }
    return of_start | of_outcome


def clocks(action: ProtectedCall, doubt: StartBody) -> tuple[int, int]:
    """Return the store's time, and the time by which the doubt is judged (see `believed_ms`)."""
    now_ms = action.execution.store.now_ms()
    return now_ms, believed_ms(doubt, now_ms, *boot_reading(action.execution.clock))


def next_check_ms(now_ms: int, since_ms: int) -> int:
    """Return when to check again: soon at first, then less and less often, once a minute at last."""
    return now_ms + max(_FIRST_CHECK_MS, min(now_ms - since_ms, 60_000))


async def rest(action: ProtectedCall, due_ms: int | None, what: str) -> None:
    """Wait durably until `due_ms`, or until a body that ran past its time limit is done."""
    late = action.late_body

    def check(news: News) -> bool | None:
        over = (due_ms is not None and news.now_ms >= due_ms) or (late is not None and late.done())
        return True if over else None

    await action.despite_cancellation(
        lambda: wait(action.execution, f"to know of {action.step.name}: {what}", check, due_ms=due_ms),
        waits=True,
    )
