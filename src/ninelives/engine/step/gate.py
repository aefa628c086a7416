"""The gate: what governs a run is asked before anything of a call happens.

It stands after the lookup and the barrier, and before an approval, a key, an intent and the body. A call
whose outcome is on record does not come here: a replay asks no one. In this order: does something hold the
call (`held`, a durable wait), what does the policy say (`judge`), then the approvals: the policy's, and the
step's own. What the store must check as well travels with the commit of the intent: required documents, and
what is reserved (docs/decisions/0035).

What raises or cannot be judged stops the run for a person (PolicyFailed); it never allows. If we die before
the first record of the call, the next worker asks again, by the policy that it has loaded.
"""

from __future__ import annotations

import asyncio
from typing import Any, NoReturn

from msgspec import Struct
from msgspec.structs import replace

from ninelives.core.errors import Denied, PolicyFailed
from ninelives.core.governance.accounts import Over, Requirement, Reserve, Settle
from ninelives.core.governance.judged import Judged, judged, released
from ninelives.core.governance.verdicts import Allow, Ask, Call, Deny, Judgement, Rewrite
from ninelives.core.journal.approval import Approval
from ninelives.core.journal.replay import write_body
from ninelives.core.model.commit import Outcome, Verdict
from ninelives.core.model.run import Kind
from ninelives.core.model.totals import Facts, error_text
from ninelives.core.secret import masked_text
from ninelives.core.values.exceptions import encode_error
from ninelives.core.values.fingerprint import Fingerprint
from ninelives.engine.commit.ticket import Draft, Extras, charging
from ninelives.engine.context import Frame, StepPosition
from ninelives.engine.governor import Governor, Hold, Permit
from ninelives.engine.run.current import execution_of
from ninelives.engine.run.execution import Execution
from ninelives.engine.run.lifecycle import OPEN, Phase
from ninelives.engine.run.waits import turn_away
from ninelives.engine.spec.registry import Step
from ninelives.engine.step import approval, holds, judging
from ninelives.engine.step.approval import ApprovalRequest, ByPolicy
from ninelives.engine.step.envelope import Builtin
from ninelives.engine.step.reservations import OpenReservations, ended, settles
from ninelives.engine.step.retry_pause import outside

MOST_CHANGES = 20
"""How often a required document may change under one intent before a person is asked."""


class GatedCall(Struct, frozen=True):
    """A call before the gate. `kind` is set for what is no step: a spawn.

    `keeps` is how the call was judged before, if its arguments must stay as they were rewritten then: its key
    is in use. `args` and `kwargs` are then those. `is_settled`: earlier starts of it have been settled.
    `admitted` is the digest of the arguments that were judged, where they could have been changed since.
    """

    execution: Execution
    step: Step
    fingerprint: Fingerprint
    position: StepPosition
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    key: str
    kind: str = ""
    keeps: Judged | None = None
    is_settled: bool = False
    admitted: bytes | None = None


Said = Permit | Judgement | PolicyFailed | None
"""What was said of a call without waiting: a permit; else its judgement, if it was judged already."""


def at_once(gated: GatedCall) -> Said:
    """Return the permit of a resumable call that is plainly allowed: nothing holds it, no person is asked.

    The hot path. What it returns else is for `open_gate`, so that no policy is asked twice.
    """
    execution, step, governor = gated.execution, gated.step, gated.execution.governing.governor
    if governor is None or not governor.has_policy or step.approval is not None:
        return None
    if execution.run.parent is not None and not judging.is_depth_known(execution):
        return None
    call = call_of(gated)
    try:
        requires = holds.free(execution, step, call)
        if requires is None:
            return None
        judgement = judging.judge(governor, step, call)
        if type(judgement.verdict) is not Allow:
            return judgement
        reserves = judging.reserves(governor, step, call)
    except PolicyFailed as error:
        return error
    said = judged(judgement, reserves=reserves)
    left, digest = _left(gated, call), _digest(gated, gated.args, gated.kwargs)
    return Permit(call, gated.args, gated.kwargs, said, reserves, left, digest=digest, requires=requires)


async def open_gate(gated: GatedCall, said: Said) -> Permit:
    """Return once a resumable call may begin; what it reserves is then durable. Raises Denied, recorded.

    `said` is what `at_once` has returned just now.
    """
    permit = said if isinstance(said, Permit) else await admit(gated, said)
    return await reserve(gated, permit) if permit.accounts else permit


async def admit(gated: GatedCall, said: Judgement | PolicyFailed | None = None) -> Permit:
    """Return once the call may begin. Nothing is awaited between the last question and the return.

    `said`: how it was judged just now, if it was. Raises Denied, recorded as the step's outcome.
    """
    execution = gated.execution
    try:
        if not judging.is_depth_known(execution):
            await judging.depth_of(execution)
        while True:
            permit, has_waited = await _judged(gated, said)
            if not has_waited:
                return permit
            # It took time: there may be another policy by now, or a halt. Approvals that were given count.
            said = None
            if execution.phase is not OPEN:
                await turn_away(execution)
    except PolicyFailed as error:
        return await stop(execution, error)
    except asyncio.CancelledError:
        # Its record makes a replay wait for the same cancellation, whatever governs then.
        _note_withdrawn(gated)
        raise


async def _judged(gated: GatedCall, said: Judgement | PolicyFailed | None) -> tuple[Permit, bool]:
    """Ask about a call once; return what it may do, and whether a person had to be waited for."""
    if isinstance(said, PolicyFailed):
        raise said
    call = call_of(gated)
    requires = holds.free(gated.execution, gated.step, call)
    if requires is None:
        requires = await holds.wait_unheld(gated.execution, gated.step, call)
    governor, has_waited = gated.execution.governor, False
    if governor is None or not governor.has_policy:
        digest = _digest(gated, gated.args, gated.kwargs) if gated.step.approval is not None else None
        left = _left(gated, call)
        permit = Permit(
            call, gated.args, gated.kwargs, gated.keeps, left=left, digest=digest, requires=requires
        )
        return permit, await approval.declared(_request(gated, permit))
    judgement = said or judging.judge(governor, gated.step, call)
    verdict, permit = judgement.verdict, _permit(gated, call, judgement, governor, requires)
    if isinstance(verdict, Deny):
        await _deny(gated, permit, f"the policy denies it: {verdict.why}")
    if isinstance(verdict, Ask):
        has_waited = await _approved(gated, permit, verdict, "policy")
    if gated.step.approval is None:
        return permit, has_waited
    return permit, await approval.declared(_request(gated, permit)) or has_waited


def call_of(gated: GatedCall) -> Call:
    """Return a call as a policy sees it."""
    execution, step = gated.execution, gated.step
    return judging.call_of(
        execution, step, gated.position.id, gated.args, gated.kwargs, key=gated.key, kind=gated.kind
    )


def _permit(
    gated: GatedCall,
    call: Call,
    judgement: Judgement,
    governor: Governor,
    requires: tuple[Requirement, ...],
) -> Permit:
    step, verdict = gated.step, judgement.verdict
    args, kwargs = gated.args, gated.kwargs
    encoded = {name: bytes(data) for name, data in gated.keeps.args.items()} if gated.keeps else {}
    if isinstance(verdict, Rewrite) and gated.keeps is not None:
        kept = {name: call.args.get(name) for name in verdict.args}
        if judging.encode(step, call, verdict.args) != judging.encode(step, call, kept):
            # Its key is in use: it can begin with other arguments no more, nor with these.
            raise judging.failed(call, "it has begun before, and would be rewritten to other arguments now")
    elif isinstance(verdict, Rewrite):
        encoded = judging.encode(step, call, verdict.args)
        args, kwargs = judging.with_changes(step, args, kwargs, judging.decode(step, encoded))
        key = judging.key_of(step, args, kwargs) or call.key
        call = replace(call, args=judging.arguments(step, args, kwargs), key=key)
    reserves: tuple[Reserve, ...] = ()
    if not isinstance(verdict, Deny):
        reserves = judging.reserves(governor, step, call)
    said = judged(judgement, args=encoded, reserves=reserves)
    left, digest = _left(gated, call), _digest(gated, args, kwargs)
    return Permit(call, args, kwargs, said, reserves, left, digest=digest, requires=requires)


def _digest(gated: GatedCall, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes | None:
    """Return the digest of arguments as they are judged; None if there is nothing in them to change."""
    if gated.fingerprint.plain is not None:
        return None
    return gated.step.fingerprint(args, kwargs, gated.execution.lists).digest


def _left(gated: GatedCall, call: Call) -> tuple[Settle, ...]:
    """Return how to settle what an earlier start of this call reserved: its worker died, or lost the run."""
    reserves = gated.execution.component(OpenReservations).get(gated.position.id, ())
    if gated.is_settled or not reserves:
        return ()
    return settles(gated.execution, gated.step, call, reserves, None, None)


def is_as_admitted(gated: GatedCall) -> bool:
    """Return whether the arguments of a call that has been admitted are still those that were judged."""
    return gated.admitted is None or gated.admitted == _digest(gated, gated.args, gated.kwargs)


# Waits ------------------------------------------------------------------------------------------


async def wait_permitted(gated: GatedCall, permit: Permit) -> tuple[Requirement, ...]:
    """Wait until nothing holds a call that was admitted a moment ago; as `wait_unheld`."""
    try:
        return await holds.wait_unheld(gated.execution, gated.step, permit.call)
    except PolicyFailed as error:
        await stop(gated.execution, error)
    except asyncio.CancelledError:
        _note_withdrawn(gated)
        raise


async def wait_between(frame: Frame, step: Step, permit: Permit) -> None:
    """Wait, before another attempt of a body, until nothing holds the call."""
    execution = execution_of(frame.position)
    try:
        if holds.held(execution, step, permit.call) is not None:
            with outside(frame):
                await holds.wait_unheld(execution, step, permit.call)
    except PolicyFailed as error:
        await stop(execution, error)


async def _approved(gated: GatedCall, permit: Permit, ask: Ask, part: str) -> bool:
    """Wait until as many different people as a policy asks for have approved; return whether it waited."""
    people: tuple[str, ...] = ()
    has_waited, said = False, permit.judged
    for number in range(1, ask.approvals + 1):
        evidence = {"rules": ", ".join(said.r) if said is not None else ""}
        if ask.approvals > 1:
            evidence["approval"] = f"{number} of {ask.approvals}, by different people"
        by_policy = ByPolicy(
            part=f"{part}/{number}",
            policy=said.p if said is not None else "",
            why=ask.why,
            evidence={name: text for name, text in evidence.items() if text},
            not_by=people,
            judged=said,
            left=permit.left,
        )
        wanted = Approval(to=ask.to, timeout=ask.timeout)
        by, waited = await approval.seek(_request(gated, permit), wanted, by_policy)
        people, has_waited = (*people, by), has_waited or waited
    return has_waited


def _request(gated: GatedCall, permit: Permit) -> ApprovalRequest:
    return ApprovalRequest(
        execution=gated.execution,
        step=gated.step,
        fingerprint=gated.fingerprint,
        position=gated.position,
        args=permit.args,
        kwargs=permit.kwargs,
        key=permit.call.key,
    )


# What ends a call here ----------------------------------------------------------------------------


async def _deny(gated: GatedCall, permit: Permit, why: str) -> NoReturn:
    """Record the denial as the outcome of the call, and raise it when it may be delivered."""
    execution, step, position = gated.execution, gated.step, gated.position
    why = masked_text(why)
    error = Denied(why, run=execution.run.id, step=position.id)
    body = write_body(gated.fingerprint, error=encode_error(error), judged=permit.judged)
    draft: Draft = (Kind.FAILURE, position.id, body, (), Facts(step.kind, error=error_text(error)))
    ended(execution, step, permit.call, error)
    if execution.hooks is not None:
        execution.hooks.denied(execution, step, position.id, permit.judged, why)
    builtin = Builtin(execution, step.name, position)
    # CRASH: denied and not recorded: the next worker asks again.
    execution.component(OpenReservations).set(position.id, ())
    await builtin.settle([draft], charging(permit.left))
    raise error


async def stop(execution: Execution, error: PolicyFailed) -> NoReturn:
    """Stop the run for a person: the call can be neither allowed nor denied."""
    execution.seal(error)
    await execution.forever()
    raise error


def _note_withdrawn(gated: GatedCall) -> None:
    if gated.kind:
        return  # the built-in step that it is notes that itself
    body = write_body(gated.fingerprint)
    gated.execution.note(Kind.WITHDRAWN, gated.position.id, body, Facts(gated.step.kind))


# The commit of an intent --------------------------------------------------------------------------


async def refused(gated: GatedCall, permit: Permit | None, verdict: Verdict, times: int = 0) -> Permit | None:
    """Handle an intent that the store refused (CHANGED, OVER); return what the call may do now.

    `times` is how often this intent was refused for a change before. Raises Denied, recorded.
    """
    try:
        if verdict.outcome is Outcome.CHANGED:
            await _see_change(gated, times)
        elif verdict.account is not None and permit is not None:
            exceeding = await _over(gated, permit, verdict.account)
            if exceeding is not None:
                return exceeding
    except PolicyFailed as error:
        await stop(gated.execution, error)
    except asyncio.CancelledError:
        _note_withdrawn(gated)
        raise
    return await admit(gated) if gated.execution.governor is not None else None


async def _see_change(gated: GatedCall, times: int) -> None:
    """Read what a required document says now."""
    execution, governing = gated.execution, gated.execution.governing
    call = call_of(gated)
    try:
        if governing.governor is not None:
            await governing.governor.refresh()
        elif governing.install is not None:
            await governing.install()
    except Exception as error:
        raise judging.failed(call, f"the halts of this store cannot be read: {error}") from error
    if governing.governor is None:
        raise judging.failed(call, "the store says that something is halted, and nothing here can read what")
    if times >= MOST_CHANGES:
        raise judging.failed(call, "what it requires changes again and again")
    await execution.require_open()


async def _over(gated: GatedCall, permit: Permit, over: Over) -> Permit | None:
    """Handle a reservation that would pass a limit; return a permit that exceeds it, if a person says so."""
    execution, step, call = gated.execution, gated.step, permit.call
    governor = execution.governor
    if governor is None:
        return None
    said = judging.ask("over", call, lambda: governor.over(step, call, over))
    if isinstance(said, Deny):
        await _deny(gated, permit, said.why)
    if isinstance(said, Ask):
        if await _approved(gated, permit, said, f"over {over.account} {over.meter}"):
            return None  # it took time: all is asked again, and this approval counts then
        # Approved: it counts as spent in full, since no reservation of it can pass.
        exceeds = tuple(Settle(one.account, {}, one.amounts) for one in permit.reserves if _is(one, over))
        within = tuple(one for one in permit.reserves if not _is(one, over))
        held = {one.account: one.amounts for one in within}
        said_of_it = replace(permit.judged, held=held) if permit.judged is not None else None
        return replace(permit, judged=said_of_it, reserves=within, exceeds=(*permit.exceeds, *exceeds))
    if not isinstance(said, Hold):
        raise judging.failed(call, f"over returned {said!r}")
    holds.report(execution, call, said)
    await holds.wait_within(execution, said)
    return None


def _is(one: Reserve, over: Over) -> bool:
    return one.account == over.account


async def reserve(gated: GatedCall, permit: Permit, value: bytes | None = None) -> Permit:
    """Reserve what a resumable call may spend, in an intent of its own: one commit before its body.

    `value` goes into the intent. Raises Denied, recorded.
    """
    execution, position, times = gated.execution, gated.position, 0
    found: Permit | None = permit
    while found is not None and found.accounts:
        if times:  # the refused commit took time, and a halt that came meanwhile is known by now
            found = await _unheld(gated, found)
        body = write_body(gated.fingerprint, value=value, judged=found.judged)
        extras = Extras(requires=found.requires, accounts=found.accounts)
        draft: Draft = (Kind.INTENT, position.id, body, (), Facts(gated.step.kind))
        # CRASH: reserved, and the body has not begun: the next worker presumes it spent, and reserves again.
        written = execution.commit_here([draft], extras)
        if isinstance(written, Verdict):
            if execution.sealed is not None:  # by a refusal
                await execution.forever()
            verdict, is_cancelled = written, False
        else:
            verdict, is_cancelled = await _committed(execution, written)
        if is_cancelled:
            _withdraw(gated, found if verdict.outcome is Outcome.COMMITTED else None)
            raise asyncio.CancelledError
        if verdict.outcome is Outcome.COMMITTED:
            execution.component(OpenReservations).set(position.id, found.reserves)
            return found
        found, times = await refused(gated, found, verdict, times), times + 1
    return found or replace(permit, judged=None, reserves=(), left=(), exceeds=())


async def _unheld(gated: GatedCall, permit: Permit) -> Permit:
    """Return the permit if nothing holds the call; else ask about all of it again."""
    try:
        requires = holds.free(gated.execution, gated.step, permit.call)
    except PolicyFailed as error:
        await stop(gated.execution, error)
    return replace(permit, requires=requires) if requires is not None else await admit(gated)


async def _committed(execution: Execution, written: asyncio.Future[Verdict]) -> tuple[Verdict, bool]:
    """Wait for a verdict, even if the run's code cancels that; return the verdict, and whether it did."""
    is_cancelled = False
    while True:
        try:
            # Shielded: `durable` cancels what it awaits, and what was reserved must be known.
            return await execution.durable(asyncio.shield(written)), is_cancelled
        except asyncio.CancelledError:
            if execution.phase & (Phase.SEALED | Phase.LEAVING):
                raise
            is_cancelled = True


def _withdraw(gated: GatedCall, reserved: Permit | None) -> None:
    """Record that the run's code cancelled a call before its body, and release what it has reserved."""
    accounts = released(reserved.reserves) if reserved is not None else ()
    if gated.kind:  # the built-in step that it is notes that itself
        gated.execution.component(OpenReservations).set(
            gated.position.id, reserved.reserves if reserved else ()
        )
        return
    draft: Draft = (
        Kind.WITHDRAWN,
        gated.position.id,
        write_body(gated.fingerprint),
        (),
        Facts(gated.step.kind),
    )
    gated.execution.write([draft], charging(accounts))
