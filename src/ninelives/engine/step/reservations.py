"""What calls have reserved under limits, and how that is settled when they end.

A reservation is made in the commit of a start, and settled in the commit of its outcome, so no crash parts
them. A start that no outcome follows (its worker died, its code is gone) is presumed to have spent all that
it reserved: in the commit of the next start, or in the commit that ends its turn or its run. If we die before
that, the next worker finds the same start in the journal.
"""

from __future__ import annotations

import logging

from ninelives.core.errors import NotDone
from ninelives.core.governance.accounts import Reserve, Settle
from ninelives.core.governance.costs import LOST, TOKENS
from ninelives.core.governance.judged import held_by, presumed, released
from ninelives.core.governance.verdicts import Call
from ninelives.core.journal.replay import read_body
from ninelives.core.values.token_usage import usage_in
from ninelives.engine.context import Frame
from ninelives.engine.governor import Permit
from ninelives.engine.run.current import execution_of
from ninelives.engine.run.execution import Execution
from ninelives.engine.spec.registry import Step

LOGGER = logging.getLogger("ninelives")


class OpenReservations(dict[str, tuple[Reserve, ...]]):
    """What starts without an outcome have reserved, by step, in earlier executions and in this one.

    A start that no code comes back to is settled when its turn or its run ends (`unsettled`).
    """

    def __init__(self, execution: Execution) -> None:
        super().__init__()
        replay = execution.replay
        for step, intent in replay.intents.items():
            # A start that a retry superseded had an outcome, which has settled it.
            reserves = held_by(read_body(intent).j) if replay.counts(intent) else ()
            if reserves:
                self[step] = reserves

    @staticmethod
    def take(execution: Execution, step: str) -> tuple[Reserve, ...]:
        """Return what the last start of a step has reserved; from now on that counts as settled."""
        if not execution.replay.intents and execution.governing.governor is None:
            return ()
        return execution.component(OpenReservations).pop(step, ())

    def set(self, step: str, reserves: tuple[Reserve, ...]) -> None:
        """Note what the last start of a step has reserved; nothing, once that is settled."""
        self.pop(step, None)
        if reserves:
            self[step] = reserves


def unsettled(execution: Execution) -> tuple[Settle, ...]:
    """Return how the commit that ends a turn or a run settles what starts without an outcome reserved."""
    if not execution.replay.intents and execution.governing.governor is None:
        return ()
    return tuple(one for all_ in execution.component(OpenReservations).values() for one in presumed(all_))


def settles(
    execution: Execution,
    step: Step,
    call: Call,
    reserves: tuple[Reserve, ...],
    outcome: bytes | BaseException | None,
    frame: Frame | None,
    exceeds: tuple[Settle, ...] = (),
) -> tuple[Settle, ...]:
    """Return how the commit of a call's outcome settles what it reserved; see `Governor.settles`.

    `exceeds` was charged when it began, with a person's approval: what it has spent beyond that is added.
    """
    if not reserves and not exceeds:
        return ()
    governor, charged = execution.governor, dict((frame.charged if frame is not None else None) or {})
    if frame is not None and frame.answered is not None and frame.answered.lost:
        charged[LOST] = frame.answered.lost
    if governor is not None and governor.has_policy:
        approved = tuple(Reserve(one.account, one.spent) for one in exceeds)
        try:
            found = governor.settles(step, call, (*reserves, *approved), outcome, charged)
            return tuple(one for one in (_beyond(each, exceeds) for each in found) if one is not None)
        except Exception:  # (it is settled all the same, at most too high)
            LOGGER.exception("run %r: %s: what it has spent is unknown", call.run, call.step)
    return released(reserves) if isinstance(outcome, NotDone) else presumed(reserves)


def _beyond(one: Settle, exceeds: tuple[Settle, ...]) -> Settle | None:
    """Return how an account is settled, without what it was charged before; None if nothing is left."""
    before = next((each.spent for each in exceeds if each.account == one.account), None)
    if before is None:
        return one
    spent = {meter: amount - before.get(meter, 0) for meter, amount in one.spent.items()}
    left = {meter: amount for meter, amount in spent.items() if amount > 0}
    return Settle(one.account, {}, left) if left else None


def outcome(
    step: Step, permit: Permit, frame: Frame, found: bytes | BaseException | None
) -> tuple[Settle, ...]:
    """Report how a call ended, by its frame; return how the commit of its outcome settles its reservations.

    `found` is as in `Governor.settles`.
    """
    execution = execution_of(frame.position)
    error = found if isinstance(found, BaseException) else None
    tokens = tokens_of(frame, found) if step.limit is not None else 0
    ended(execution, step, permit.call, error, tokens, requests_of(frame))
    if permit.reserves:
        execution.component(OpenReservations).set(frame.position.id, ())
    return settles(execution, step, permit.call, permit.reserves, found, frame, permit.exceeds)


def requests_of(frame: Frame) -> int:
    """Return how many requests a body has sent since this was last asked."""
    if frame.answered is None:
        return 1
    before, frame.counted = frame.counted, frame.answered.ways
    return frame.counted - before


def tokens_of(frame: Frame, found: bytes | BaseException | None) -> int:
    """Return the tokens that a body has charged, or that its answer reports."""
    charged = (frame.charged or {}).get(TOKENS)
    if charged is not None:
        return charged
    usage = usage_in(found) if isinstance(found, bytes) else None
    return usage.tokens if usage is not None else 0


def ended(
    execution: Execution,
    step: Step,
    call: Call,
    error: BaseException | None,
    tokens: int = 0,
    requests: int = 1,
) -> None:
    """Report to what governs how a call ended."""
    governor = execution.governor
    if governor is not None:
        try:
            governor.outcome(step, call, error, tokens, requests)
        except Exception:  # (the outcome stands; what counts it must not change it)
            LOGGER.exception("run %r: %s: its end was not counted", call.run, call.step)
