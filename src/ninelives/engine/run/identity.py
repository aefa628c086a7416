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
from collections.abc import Awaitable, Callable
from enum import IntEnum
from functools import partial
from typing import TYPE_CHECKING

from ninelives.core.errors import BadName, Divergence, UsageError
from ninelives.core.ids import parse_step_id
from ninelives.core.journal.matching import Claimed, RecordClaims, Start, StepCall
from ninelives.core.journal.replay import Recorded, changed_arguments, changed_start, differences, step_name
from ninelives.core.model.run import StepKind
from ninelives.core.step_ids import step_text
from ninelives.core.values.fingerprint import Fingerprint
from ninelives.engine.context import StepPosition
from ninelives.engine.spec.registry import AGENTS, STEPS, Step

if TYPE_CHECKING:
    from ninelives.engine.run.execution import Execution

LOGGER = logging.getLogger("ninelives")
_FREE_BUILTINS = frozenset(
    {"now", "sleep", "sleep_until", "timeout", "ask", "hold", "release", "emit", "log"}
)
_CHILD = "spawn:"
_FREE_PREFIXES = ("receive:", "result:", "cancel:", "patched:")
_SAYS: dict[StepKind | None, bool] = {StepKind.DECISION: False, StepKind.READ: False, StepKind.ACTION: True}
"""Whether a record that says what its step is says that it is an effect."""


Begin = Callable[[Callable[[], Awaitable[None]]], Awaitable[None]]


class Care(IntEnum):
    """How much care an action is started with."""

    NONE = 0
    KEYED = 1
    NON_RESUMABLE = 2

    @staticmethod
    def of_step(step: Step) -> Care:
        """Return the care that a step declares."""
        if step.effect is None:
            return Care.NONE
        return Care.KEYED if step.effect.resumable else Care.NON_RESUMABLE

    @staticmethod
    def of_start(start: Start) -> Care:
        """Return the care that a start was made with."""
        if start.is_protected:
            return Care.NON_RESUMABLE
        return Care.KEYED if start.key else Care.NONE


async def _begin(wait: Callable[[], Awaitable[None]]) -> None:
    await wait()


class StepLookup:
    """A call that looks for its record, with what is needed to refuse it in words.

    `begin` waits, by what it is given, until a start that was found may be gone on with.
    """

    __slots__ = ("asked", "begin", "call", "care", "execution", "place", "where")

    def __init__(
        self,
        execution: Execution,
        place: StepPosition,
        asked: Fingerprint | None,
        *,
        where: Callable[[], str],
        aliases: tuple[str, ...] = (),
        is_effect: bool = False,
        given: str | None = None,
        child: str | None = None,
        care: Care = Care.NONE,
        begin: Begin | None = None,
    ) -> None:
        self.execution, self.place, self.asked, self.where = execution, place, asked, where
        self.care, self.begin = care, begin or _begin
        self.call = StepCall(
            places=(place.id, *(place.id_under(alias) for alias in aliases)),
            names=(place.name, *aliases),
            f=asked.digest.hex() if asked is not None else "",
            given=given,
            child=child,
            is_effect=is_effect,
        )

    def look_up_where(self) -> None:
        """Look up where the call is, while it can be seen: an effect may be refused while it waits."""
        if self.call.is_effect:
            where = self.where()
            self.where = lambda: where


def is_effect_step(step: Step) -> bool:
    """Tell whether a declared step is done to the world: repeated, it would be seen."""
    return not step.reads_only or step.effect is not None


def is_effect_name(name: str) -> bool:
    """Tell whether a recorded step of this name counts as an effect; one that nobody knows does."""
    known = _declared(name)
    if known:
        return any(map(is_effect_step, known))
    return name not in _FREE_BUILTINS and not name.startswith(_FREE_PREFIXES)


def is_unknown(name: str) -> bool:
    """Tell whether a recorded name is that of a step which the code declares no more: deleted, or renamed."""
    built_in = name in _FREE_BUILTINS or name.startswith((*_FREE_PREFIXES, _CHILD))
    return not built_in and not _declared(name)


def _declared(name: str) -> list[Step]:
    return [
        step
        for one in STEPS.values()
        if isinstance(step := getattr(one, "__ninelives__", None), Step)
        and (step.name == name or name in step.aliases)
    ]


def is_effect(found: Claimed) -> bool:
    """Tell whether a record is that of an effect: as it says itself, else as its name is declared now."""
    said = _SAYS.get(found.step_kind)
    if said is not None:
        return said
    try:
        return is_effect_name(parse_step_id(found.step).name)
    except BadName:
        return False


def claims_of(execution: Execution) -> RecordClaims:
    """Return what is unclaimed of a run's journal."""
    if execution.claims is None:
        execution.claims = RecordClaims(execution.replay)
    return execution.claims


def passed_over(execution: Execution) -> Claimed | None:
    """Return the earliest recorded effect that no call has claimed, and that the agent does not forget."""
    claims, forgets = claims_of(execution), forgotten(execution)

    def is_missed(found: Claimed) -> bool:
        name = step_name(found.step)
        what = (name, found.step_kind)  # a step may have been a read when some of its records were made
        known = claims.effects.get(what)
        if known is None:
            known = claims.effects[what] = is_effect(found)
        return known and name not in forgets

    return claims.passed_over(is_missed)


def forgotten(execution: Execution) -> tuple[str, ...]:
    """Return the names of the steps whose effects the run's agent gives up on purpose."""
    agent = AGENTS.get(execution.run.agent)
    return agent.forgets if agent is not None else ()


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
    execution, place = asking.execution, asking.place
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
        execution.seal(weaker(asking, found))
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
    execution = asking.execution
    found = next((at for place in asking.call.places if (at := claims.at(place)) is not None), None)
    if found is None or asking.asked is None or asking.call.is_effect:
        return
    if await is_same_code(execution):
        execution.seal(changed(asking, found))
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


# Refusals --------------------------------------------------------------------------------------------


def refuse(asking: StepLookup, missed: Claimed) -> None:
    """Stop the run before an effect starts, since an effect on record was passed over."""
    claims = claims_of(asking.execution)
    for place in asking.call.places:
        found = claims.at(place)
        if found is not None and is_effect(found) and found.body.f != asking.call.f:
            asking.execution.seal(changed(asking, found))
            return
    asking.execution.seal(not_asked_for(asking, missed))


def changed(asking: StepLookup, found: Claimed) -> Divergence:
    """Return the error for a call with other arguments than are recorded at its place."""
    asked: Fingerprint = asking.asked or Fingerprint(b"", b"{}")
    run, where = asking.execution.run.id, asking.where()
    if isinstance(found, Start):
        return changed_start(found.body, asked, run=run, step=found.step, where=where)
    return changed_arguments(found, asked, run=run, where=where)


def weaker(asking: StepLookup, found: Start) -> Divergence:
    """Return the error for a start that the code would now repeat with less care than it was started with."""
    was = "non-resumable" if found.is_protected else f"under the key {found.key!r}"
    keep = "resumable=False" if found.is_protected else "its key="
    return Divergence(
        f"the code at {asking.where()} would start this step again; but it was started as {was}, "
        "and it is not known what came of that",
        run=asking.execution.run.id,
        step=found.step,
        remedy=f"Nothing was executed. Put {keep} back until this run is over",
    )


def not_asked_for(asking: StepLookup, missed: Claimed) -> Divergence:
    """Return the error for an effect that would start although one on record was passed over."""
    name = parse_step_id(missed.step).name
    given = ", ".join(f"{name}={value}" for name, value in missed.body.a.items())
    became = "was started, and it is not known what came of that" if isinstance(missed, Start) else "was done"
    new = asking.place.name
    return Divergence(
        f"the code at {asking.where()} would start {new} now, but {step_text(missed.step)}({given}), which "
        f"{became} (record {missed.seq}), was not asked for: it could be done a second time",
        run=asking.execution.run.id,
        step=missed.step,
        remedy=f"Nothing was executed. {_if_renamed(name, new)}"
        f'If the code gives {name} up on purpose, declare @nl.agent(forgets=["{name}"]); '
        f'if {new} was inserted before {name} or stands for it, write `if nl.patched("{new}"):` around it, '
        "with the old code under `else:`; "
        "else put the code back",
    )


def _if_renamed(old: str, new: str) -> str:
    """Say how a step, or a child's agent, that has another name now keeps its records."""
    was_child, is_child = old.startswith(_CHILD), new.startswith(_CHILD)
    if was_child and is_child:
        old, new = old.removeprefix(_CHILD), new.removeprefix(_CHILD)
        return f'If the agent {new} is {old} renamed, declare it with @nl.agent(name="{old}"); '
    if was_child or is_child:
        return ""  # a step and a child: neither can be the other
    return f'If {new} is {old} renamed, declare it with aliases=["{old}"]; '


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
