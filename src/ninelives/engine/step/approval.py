"""Approvals: before an action does anything, a person must approve exactly these arguments.

An approval is bound to the digest of action, key and arguments. An ANSWER record takes it before the action
reserves its key or begins; a denial is taken together with the failure that the agent sees. If we die
between, the next worker finds the same answer, provided that it makes the same request: an approval of
other arguments is void.
"""

from __future__ import annotations

import asyncio
from typing import Any

from ninelives.core.errors import Denied
from ninelives.core.journal.answers import Answer, ItemBody, Says, read_answer, write_default, write_taken
from ninelives.core.journal.approval import digest, shown
from ninelives.core.journal.replay import write_body
from ninelives.core.model.commit import Outcome
from ninelives.core.model.inbox import Item, ItemKind
from ninelives.core.model.run import Kind, StepKind
from ninelives.core.model.totals import Facts, error_text
from ninelives.core.values.exceptions import encode_error
from ninelives.core.values.fingerprint import Fingerprint, whole
from ninelives.engine.commit.ticket import NOTHING, Draft, Extras
from ninelives.engine.context import StepPosition
from ninelives.engine.run.execution import Execution
from ninelives.engine.run.lifecycle import OPEN
from ninelives.engine.run.waits import turn_away
from ninelives.engine.spec import callbacks
from ninelives.engine.spec.registry import Step
from ninelives.engine.step import inbox_request
from ninelives.engine.step.envelope import Builtin
from ninelives.engine.step.inbox_request import InboxRequest, Late


async def obtain(
    execution: Execution,
    step: Step,
    fingerprint: Fingerprint,
    position: StepPosition,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    key: str,
) -> None:
    """Return once a person has approved this call, or if it needs no approval. Call it before any effect.

    Raises Denied, recorded as the step's outcome.
    """
    approval = step.approval
    if approval is None or not callbacks.call_plain("approval=", approval.is_needed, args, kwargs):
        return
    arguments = whole(step.signature, args, kwargs, ignore=step.ignore)
    request = InboxRequest(
        step=position.id,
        kind=ItemKind.APPROVAL,
        body=ItemBody(what=f"May {step.name} be carried out?", arguments=shown(arguments), key=key),
        digest=digest(step.name, key, arguments),
        to=approval.to,
        seconds=approval.timeout,
    )

    taken = inbox_request.taken(execution, position.id)
    if any(
        taken.get(item.id) is Says.APPROVED and item.digest == request.digest
        for item in execution.news().items
    ):
        return  # an earlier execution took the approval of exactly this

    def misfit(item: Item) -> str | None:
        return f"{item.by} denied it before" if taken.get(item.id) is Says.DENIED else None

    builtin = Builtin(execution, step.name, position)
    while True:
        try:
            found = await inbox_request.ask(execution, request, misfit)
            is_settled = await _settle(builtin, found, fingerprint, step.kind, default=approval.default)
        except asyncio.CancelledError:
            execution.note(Kind.WITHDRAWN, position.id, write_body(fingerprint), Facts(step.kind))
            raise
        if is_settled:
            if execution.phase is not OPEN:
                await turn_away(execution)
            return


async def _settle(
    builtin: Builtin, found: Item | Late, fingerprint: Fingerprint, kind: StepKind, *, default: bool
) -> bool:
    """Record the answer; return False if one came at this moment and must be read. Raises Denied."""
    execution, step = builtin.execution, builtin.id
    extras = NOTHING
    if isinstance(found, Late):
        answer = Answer(Says.APPROVED if default else Says.DENIED, note="no answer came in time")
        body = write_default(found.item, ItemKind.APPROVAL, execution.store.now_ms(), answer)
        extras = Extras(closes=(found.item,))
        who = "its deadline"
    else:
        answer, body, who = read_answer(found), write_taken(found), found.by
    drafts: list[Draft] = [(Kind.ANSWER, step, body)]
    if answer.says is Says.APPROVED:
        # CRASH: approved and not taken, or taken and not begun: the next worker finds the approval again.
        verdict = await execution.durable(execution.write(drafts, extras))
        return verdict.outcome is Outcome.COMMITTED
    note = f", saying: {answer.note}" if answer.note else ""
    error = Denied(f"{who} denied it{note}", run=execution.run.id, step=step)
    facts = Facts(kind, error=error_text(error))
    drafts.append((Kind.FAILURE, step, write_body(fingerprint, error=encode_error(error)), (), facts))
    if await builtin.settle(drafts, extras):
        raise error
    return False
