"""Step identity: a call finds its record, and no change of code repeats an effect.

A call finds its record at its own position (turn, branch, name and count, or its `id=`) at once, if the
arguments are the same. Else it claims an unclaimed record of the same step, or of one of its aliases, with
the same arguments. That is decided only when the run's code is quiescent, so that no call takes a record
which another branch of unchanged code claims by its position.

Before the body of an effect starts, the code is quiescent, no decision or read without a record is under way,
and every record that can be claimed has been. A recorded effect that is then unclaimed was passed over: the
run stops before anything happens. If we die anywhere in here, nothing was written, and the next worker
finds the same records. See docs/decisions/0015.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial

from ninelives.core.errors import UsageError
from ninelives.core.ids import ID_MARK
from ninelives.core.journal.matching import Claimed, RecordClaims, Start, differences
from ninelives.core.step_ids import step_text
from ninelives.engine.context import StepPosition
from ninelives.engine.run import lookup
from ninelives.engine.run.current import call_site, execution_of
from ninelives.engine.run.execution import Execution
from ninelives.engine.run.lookup import ProtectionLevel, StepLookup
from ninelives.engine.spec.registry import Step

LOGGER = logging.getLogger("ninelives")


def is_unsettled(execution: Execution) -> bool:
    """Return whether recorded outcomes are to come, an open start is unclaimed, or a compensation waits."""
    return execution.is_catching_up or execution.claims.open > 0 or bool(execution.replay.registering)


def has_gone_on(execution: Execution) -> bool:
    """Return whether an earlier execution got past this point: there are records after those delivered.

    An unclaimed effect counts wherever it stands: what this code recorded before it parked comes after the
    effect and would hide it, and new effects are refused while it is unclaimed. So does a compensation.
    """
    if not execution.is_resumed:
        return False
    delivered = execution.delivery.delivered_seq
    unclaimed = execution.claims.unclaimed()
    later = any(one.seq > delivered and not lookup.is_reaction(execution, one) for one in unclaimed)
    if later or execution.delivery.has_recorded or lookup.passed_over(execution) is not None:
        return True
    return lookup.passed_undo(execution) is not None


async def find(search: StepLookup) -> Claimed | None:
    """Return the record of a call; None when its body may start now, under the position's id.

    The position takes over the id of the record found. Never returns when a divergence stops the run.
    """
    execution, position = execution_of(search), search.position
    claims = execution.claims
    # Without waiting for rest: in unchanged code no other call owns the record at this position.
    found = claims.by_position(search.call)
    if found is None and (is_unsettled(execution) or claims.earliest_match(search.call) is not None):
        search.keep_where()
        try:
            found = await execution.delivery.seek(search)
        except asyncio.CancelledError:
            # A race's loser whose call has moved must not count as an effect that was passed over.
            claims.take_cancelled(search.call)
            unshared(position, claims)  # its withdrawal is recorded under an id without other records
            raise
        if found is not None:
            execution.moved.append((found.step, position.id))
    if found is None:
        await _refuse_change(search, claims)
        unshared(position, claims)
        return None
    position.adopt(found.step)
    if isinstance(found, Start) and found.is_open and ProtectionLevel.of_start(found) > search.level:
        # Declared as it is now, nothing would settle the doubt: the body would simply run again.
        execution.seal(lookup.weaker(search, found))
        await execution.forever()
    # To begin a start again is an effect like any other: first every recorded effect must be claimed.
    if isinstance(found, Start) and is_unsettled(execution):
        search.keep_where()
        await search.begin(partial(execution.delivery.begin, search))
    return found


def unshared(position: StepPosition, claims: RecordClaims) -> None:
    """Give a fresh call an id without records: two calls never share an id, or a key."""
    if position.id in claims.ids:
        position.move_aside(claims.ids)


async def _refuse_change(search: StepLookup, claims: RecordClaims) -> None:
    """Handle a decision or read whose arguments differ from those recorded at its position.

    In changed code it executes again, with a warning. In unchanged code it is a divergence: the code is not
    deterministic.
    """
    execution = execution_of(search)
    found = next((at for position in search.call.positions if (at := claims.at(position)) is not None), None)
    # An effect is not handled here: its old record stays unclaimed, and `Delivery` holds the effect for that.
    if found is None or search.fingerprint is None or search.call.is_effect:
        return
    if await is_same_code(execution):
        execution.seal(lookup.changed(search, found))
        await execution.forever()
    execution.called_differently.append(found.step)
    LOGGER.warning(
        "run %r: %s is executed again, since the code at %s calls it with other arguments than recorded: %s",
        execution.run.id,
        step_text(found.step),
        search.where(),
        "; ".join(differences(found.body.a, search.fingerprint.preview())),
    )


async def is_same_code(execution: Execution) -> bool:
    """Return whether the worker that died with the run is known to have had the same code as this one.

    A worker that parked a run leaves no session id on it: then the code counts as changed.
    """
    left_by, session = execution.run.left_by, execution.run.session
    if left_by is None or session is None:
        return False
    before = await execution.call_store(lambda store: store.read_session(left_by))
    now = await execution.call_store(lambda store: store.read_session(session))
    return before is not None and now is not None and bool(now.code) and before.code == now.code


# Ids from outside ------------------------------------------------------------------------------------


class ExplicitIds(set[str]):
    """The positions of the calls of one turn that have an `id=`."""

    def __init__(self, _: Execution) -> None:
        super().__init__()


def take_id(execution: Execution, position: StepPosition, step: Step) -> None:
    """Note the `id=` of a call. Raises UsageError when another call of this turn has the same."""
    taken = execution.component(ExplicitIds)
    if position.id in taken:
        raise UsageError(
            f"two calls of {position.name} have one id, {position.branch.removeprefix(ID_MARK)!r}: "
            f"the second is at {call_site(step)}",
            run=execution.run.id,
            step=position.id,
            remedy="Give id= what is different for each call, such as the id of the tool call",
        )
    taken.add(position.id)
