"""Step identity: a call finds its record, and no change of code repeats an effect.

A call finds what is recorded of it by its own place (turn, branch, name and count, or its `id=`), if it was
asked for with the same arguments: at once. Else by what it is: the same step, or one of its aliases, with the
same arguments, that no call has claimed. That is decided only when the run's code has come to rest, so that
no call takes a record which another branch of unchanged code claims by its place.

Before the body of an effect starts, the code is at rest, no decision or read that was asked afresh is under
way, and all that can be claimed has been. An effect on record that is then unclaimed was passed over: the run
stops, before anything happens. If we die anywhere in here, nothing was written, and the next life finds the
same.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial

from ninelives.core.errors import UsageError
from ninelives.core.journal.matching import Claimed, RecordClaims, Start
from ninelives.core.journal.replay import Recorded, differences
from ninelives.core.step_ids import step_text
from ninelives.core.values.fingerprint import Fingerprint
from ninelives.engine.context import StepPosition
from ninelives.engine.run import lookup
from ninelives.engine.run.current import execution_of
from ninelives.engine.run.execution import Execution
from ninelives.engine.run.lookup import Care, StepLookup, claims_of, is_effect_step
from ninelives.engine.spec.registry import Step

LOGGER = logging.getLogger("ninelives")


def is_past(execution: Execution, place: StepPosition) -> bool:
    """Tell whether a call cannot have a record, nor hold anything up: all that was recorded is claimed."""
    claims = claims_of(execution)
    return not execution.is_catching_up and not claims.has_starts and place.id not in claims.ids


def is_unsettled(execution: Execution) -> bool:
    """Tell whether recorded outcomes are still to come, or an open start is unclaimed."""
    return execution.is_catching_up or claims_of(execution).open > 0


def has_gone_on(execution: Execution) -> bool:
    """Tell whether the run had come past this point: something is on record behind what was told so far."""
    if not execution.is_resumed:
        return False
    told = execution.delivery.told_seq
    later = any(one.seq > told for one in claims_of(execution).unclaimed())
    return later or execution.delivery.has_recorded


def hold_up(execution: Execution, step: Step) -> bool:
    """Count a decision or read that is asked afresh; effects wait for it while something is unclaimed.

    Returns whether `let_go` has to be called once it is over.
    """
    if is_effect_step(step):
        return False
    execution.reads += 1
    return True


def let_go(execution: Execution) -> None:
    """Count a decision or read as over."""
    execution.reads -= 1
    execution.delivery.look()


def at_place(execution: Execution, place: StepPosition, asked: Fingerprint) -> Recorded | None:
    """Return the outcome at a call's own place, asked for with the same arguments: the usual case."""
    found = execution.replay.peek(place.id)
    if found is None or found.body.f != asked.digest.hex():
        return None
    return execution.replay.take(place.id)


async def find(asking: StepLookup) -> Claimed | None:
    """Return what is recorded of a call; None when its body may start, now, under the place's id.

    The place takes over the id of what is found. Never returns when the run is stopped for a divergence.
    """
    execution, place = execution_of(asking), asking.place
    claims = claims_of(execution)
    found = claims.by_position(asking.call)
    if found is None and (is_unsettled(execution) or claims.earliest_match(asking.call) is not None):
        asking.look_up_where()
        try:
            found = await execution.delivery.seek(asking)
        except asyncio.CancelledError:
            claims.take_cancelled(asking.call)  # the loser of a race that has moved is no effect passed over
            unshared(place, claims)  # what is written of its end is written under an id of its own
            raise
        if found is not None:
            execution.moved.append((found.step, place.id))
    if found is None:
        await _refuse_change(asking, claims)
        unshared(place, claims)
        return None
    place.adopt(found.step)
    if isinstance(found, Start) and found.is_open and Care.of_start(found) > asking.care:
        execution.seal(lookup.weaker(asking, found))
        await execution.forever()
    if isinstance(found, Start) and is_unsettled(execution):
        asking.look_up_where()
        await asking.begin(partial(execution.delivery.begin, asking))
    return found


def unshared(place: StepPosition, claims: RecordClaims) -> None:
    """Give a fresh call an id that nothing is recorded under: two calls never share an id, or a key."""
    if place.id in claims.ids:
        place.move_aside(claims.ids)


async def _refuse_change(asking: StepLookup, claims: RecordClaims) -> None:
    """Judge a decision or read that is asked for with other arguments than are recorded at its place.

    Code that was changed may ask so, and is answered afresh; code that was not is not deterministic.
    """
    execution = execution_of(asking)
    found = next((at for place in asking.call.places if (at := claims.at(place)) is not None), None)
    if found is None or asking.asked is None or asking.call.is_effect:
        return
    if await is_same_code(execution):
        execution.seal(lookup.changed(asking, found))
        await execution.forever()
    execution.asked_again.append(found.step)
    LOGGER.warning(
        "run %r: %s is asked again, since the code at %s asks with other arguments than were recorded: %s",
        execution.run.id,
        step_text(found.step),
        asking.where(),
        "; ".join(differences(found.body.a, asking.asked.preview())),
    )


async def is_same_code(execution: Execution) -> bool:
    """Tell whether the worker that died with the run had the same code as this one, for all that is known.

    A worker that parked a run leaves no name behind: then the code counts as changed.
    """
    left_by, session = execution.run.left_by, execution.run.session
    if left_by is None or session is None:
        return False
    before = await execution.call_store(lambda store: store.read_session(left_by))
    now = await execution.call_store(lambda store: store.read_session(session))
    return before is not None and now is not None and bool(now.code) and before.code == now.code


# Ids from outside ------------------------------------------------------------------------------------


def take_id(execution: Execution, place: StepPosition, where: str) -> None:
    """Note that a call has an id from outside. Raises UsageError when another call of this turn has it."""
    if execution.given is None:
        execution.given = {}
    other = execution.given.get(place.id)
    if other is not None:
        raise UsageError(
            f"two calls of {place.name} have one id: at {other} and at {where}",
            run=execution.run.id,
            step=place.id,
            remedy="Give id= what is different for each call, such as the id of the tool call",
        )
    execution.given[place.id] = where
