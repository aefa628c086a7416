"""Approvals: before an action does anything, a person must approve exactly these arguments.

Before that, a run is refused that rests on an answer to another question (`core.model_calls.used_answers`).

An approval is bound to the digest of action, key and arguments. An ANSWER record takes it before the action
reserves its key or begins; a denial is taken together with the failure that the agent sees. If we die
between, the next worker finds the same answer, provided that it makes the same request: an approval of
other arguments is void. A policy asks in the same way, with its own items; an approval of another policy is
void, and so is that of a person whose answer does not count (`Governor.refuses_answer`): a new item says why.
"""

from __future__ import annotations

import asyncio
from typing import Any, NoReturn

from msgspec import Struct

from ninelives.core.errors import Denied
from ninelives.core.governance.accounts import Settle
from ninelives.core.governance.judged import Judged
from ninelives.core.governance.taint import DECLASSIFY
from ninelives.core.journal.answers import Answer, ItemBody, Says, read_answer, write_default, write_taken
from ninelives.core.journal.approval import Approval, digest, shown
from ninelives.core.journal.replay import write_body
from ninelives.core.model.commit import Outcome
from ninelives.core.model.inbox import Item, ItemKind, ItemState
from ninelives.core.model.run import Kind
from ninelives.core.model.totals import Facts, error_text
from ninelives.core.model_calls import used_answers
from ninelives.core.secret import masked_text
from ninelives.core.values.exceptions import encode_error
from ninelives.core.values.fingerprint import Fingerprint, whole
from ninelives.engine.commit.ticket import NO_EXTRAS, Draft, Extras
from ninelives.engine.context import StepPosition
from ninelives.engine.run.execution import Execution
from ninelives.engine.run.lifecycle import OPEN
from ninelives.engine.run.waits import turn_away
from ninelives.engine.spec import callbacks
from ninelives.engine.spec.registry import Step
from ninelives.engine.step import inbox_request
from ninelives.engine.step.envelope import Builtin
from ninelives.engine.step.inbox_request import InboxRequest, Late

STARTED_BY = "started_by"
"""The label that names the person that started a run: no answer of that person may count."""


class ApprovalRequest(Struct, frozen=True, kw_only=True):
    """A call that needs a person's approval. `args` and `kwargs` are those that its body gets."""

    execution: Execution
    step: Step
    fingerprint: Fingerprint
    position: StepPosition
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    key: str


def request(
    execution: Execution,
    step: Step,
    fingerprint: Fingerprint,
    position: StepPosition,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> ApprovalRequest:
    """Return the request that a call's own declaration makes."""
    return ApprovalRequest(
        execution=execution,
        step=step,
        fingerprint=fingerprint,
        position=position,
        args=args,
        kwargs=kwargs,
        key=position.key(),
    )


def refuses(execution: Execution, step: Step) -> bool:
    """Return whether a fresh effect is refused, because of an answer of a cache that the run has used."""
    return execution.is_on_cached_answers and not execution.replay.is_undoing and step.name != DECLASSIFY


def refusal(execution: Execution, step: str | None = None) -> Denied:
    """Return the error for such an effect."""
    return used_answers.refusal(execution.run.id, step, execution.replay.cached, execution.taint)


async def refuse(
    execution: Execution, step: Step, fingerprint: Fingerprint, position: StepPosition
) -> NoReturn:
    """Record the refusal as the outcome of the call, and raise it when it may be delivered."""
    error = refusal(execution, position.id)
    if execution.hooks is not None:
        execution.hooks.denied(execution, step, position.id, None, error.what)
    facts = Facts(step.kind, error=error_text(error))
    body = write_body(fingerprint, error=encode_error(error))
    # CRASH: refused and not recorded: the next worker finds the same labels, and refuses it again.
    builtin = Builtin(execution, step.name, position)
    await builtin.settle([(Kind.FAILURE, position.id, body, (), facts)])
    raise error


class ByPolicy(Struct, frozen=True, kw_only=True):
    """A request that a policy makes, beside the one that the step itself may declare.

    `part` distinguishes several requests of one call, `policy` is the policy's digest, `not_by` are people
    whose approval does not count again. `judged` goes into the record of a denial.
    """

    part: str
    policy: str
    why: str = ""
    evidence: dict[str, str] = {}
    not_by: tuple[str, ...] = ()
    judged: Judged | None = None
    left: tuple[Settle, ...] = ()


async def obtain(request: ApprovalRequest) -> None:
    """Return once a person has approved this call, or if it needs no approval. Call it before any effect.

    Raises Denied, recorded as the step's outcome.
    """
    try:
        # Again after a wait: the run's code may have changed an argument meanwhile, and the yes is void then.
        while await declared(request):
            pass
    except asyncio.CancelledError:
        body, facts = write_body(request.fingerprint), Facts(request.step.kind)
        request.execution.note(Kind.WITHDRAWN, request.position.id, body, facts)
        raise


async def declared(request: ApprovalRequest) -> bool:
    """Do as `obtain`, but record no cancellation; return whether a person was waited for."""
    approval = request.step.approval
    if approval is None:
        return False
    if not callbacks.call_plain("approval=", approval.is_needed, request.args, request.kwargs):
        return False
    return (await seek(request, approval))[1]


class Approvals(dict[tuple[str, bytes], str]):
    """The approvals that this execution has taken: by step and digest, the person that gave it.

    By step, too: the digests of two calls with one business key are equal, and so are those of two spawns.
    """

    def __init__(self, _: Execution) -> None:
        super().__init__()


async def seek(
    request: ApprovalRequest, approval: Approval, policy: ByPolicy | None = None
) -> tuple[str, bool]:
    """Wait until a person approves exactly this call; return that person's name, and whether it has waited.

    Raises Denied, recorded as the step's outcome.
    """
    execution, step, position = request.execution, request.step, request.position
    wanted = _inbox_request(request, approval, policy)
    mine, taken = execution.component(Approvals), inbox_request.taken(execution, position.id)
    if (position.id, wanted.digest) in mine:
        return mine[position.id, wanted.digest], False

    def misfit(item: Item) -> str | None:
        if taken.get(item.id) is Says.DENIED:
            return f"{item.by} denied it before"
        # A default that was taken has no person.
        return _refused(execution, item, approval.to, policy) if item.state is ItemState.ANSWERED else None

    for item in execution.news().items:
        # An earlier execution took the approval of exactly this. It was checked then, and stands: a signature
        # that has expired since, or a key that was revoked, does not undo what is on record.
        is_same = item.digest == wanted.digest and not _repeats(item, policy)
        if is_same and taken.get(item.id) is Says.APPROVED and _stands(execution, item, approval):
            return item.by, False
    builtin = Builtin(execution, step.name, position)
    while True:
        found = await inbox_request.ask(execution, wanted, misfit)
        if await _settle(builtin, found, request, policy, default=approval.default):
            if execution.phase is not OPEN:
                await turn_away(execution)
            by = mine[position.id, wanted.digest] = found.by if isinstance(found, Item) else ""
            return by, True


def _inbox_request(request: ApprovalRequest, approval: Approval, policy: ByPolicy | None) -> InboxRequest:
    step = request.step
    arguments = whole(step.signature, request.args, request.kwargs, ignore=step.ignore)
    by = (policy.policy, policy.part) if policy is not None else ()
    what = f"May {step.name} be carried out?"
    if policy is not None and policy.why:
        what = f"{what} {masked_text(policy.why)}"
    return InboxRequest(
        step=request.position.id,
        part=policy.part if policy is not None else "",
        kind=ItemKind.APPROVAL,
        body=ItemBody(
            what=what[:1000],
            arguments=shown(arguments),
            key=request.key,
            evidence=(policy.evidence if policy is not None else {}) | _cached(request.execution),
        ),
        digest=digest(step.name, request.key, arguments, *by),
        to=approval.to,
        seconds=approval.timeout,
    )


def _cached(execution: Execution) -> dict[str, str]:
    return used_answers.evidence(execution.replay.cached, execution.taint)


def _refused(execution: Execution, item: Item, to: str, policy: ByPolicy | None) -> str | None:
    """Return why a person's approval does not count; None if it counts."""
    if _repeats(item, policy):
        return f"{item.by} has approved it already, and another person must"
    return _fault(execution, item, to)


def _stands(execution: Execution, item: Item, approval: Approval) -> bool:
    """Return whether an approval on record is one: a journal can be forged, a signature cannot."""
    if item.state is not ItemState.ANSWERED:
        return approval.default  # its deadline passed
    return _fault(execution, item, approval.to, is_taken=True) is None


def _fault(execution: Execution, item: Item, to: str, *, is_taken: bool = False) -> str | None:
    governor, starter = execution.governor, execution.run.labels.get(STARTED_BY, "")
    if governor is None:
        return None
    try:
        return governor.refuses_answer(item, to=to, not_by=starter, is_taken=is_taken)
    except Exception as error:  # noqa: BLE001 (what cannot be checked does not count)
        return f"it cannot be checked whether {item.by} may approve it: {error}"[:500]


def _repeats(item: Item, policy: ByPolicy | None) -> bool:
    return policy is not None and item.by in policy.not_by


async def _settle(
    builtin: Builtin, found: Item | Late, request: ApprovalRequest, policy: ByPolicy | None, *, default: bool
) -> bool:
    """Record the answer; return False if one came at this moment and must be read. Raises Denied."""
    execution, step = builtin.execution, builtin.id
    extras = NO_EXTRAS
    if isinstance(found, Late):
        answer = Answer(Says.APPROVED if default else Says.DENIED, note="no answer came in time")
        body = write_default(found.item, ItemKind.APPROVAL, execution.store.now_ms(), answer)
        # An answer that comes at this moment makes the commit stale: it counts, and the default does not.
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
    facts = Facts(request.step.kind, error=error_text(error))
    judged = policy.judged if policy is not None else None
    failure = write_body(request.fingerprint, error=encode_error(error), judged=judged)
    # In one commit with the answer: a denial that is taken always has its failure on record.
    drafts.append((Kind.FAILURE, step, failure, (), facts))
    if policy is not None and policy.left:
        extras = Extras(closes=extras.closes, accounts=policy.left)
    if await builtin.settle(drafts, extras):
        raise error
    return False
