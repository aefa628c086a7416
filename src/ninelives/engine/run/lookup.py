"""One call's search for its record: what it may claim, what counts as an effect, how it is refused.

The rules of step identity are in `identity`. This part is separate because `delivery`, which decides when the
run's code is quiescent, uses it too.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from enum import IntEnum

from ninelives.core.errors import BadName, Divergence
from ninelives.core.ids import ID_MARK, parse_step_id
from ninelives.core.journal.matching import Claimed, Start, StepCall, changed_arguments, changed_start
from ninelives.core.journal.replay import (
    CARRIED,
    Undo,
    read_undo,
    step_name,
)
from ninelives.core.model.run import StepKind
from ninelives.core.step_ids import step_text
from ninelives.core.values.fingerprint import Fingerprint
from ninelives.engine.context import Running, StepPosition
from ninelives.engine.spec.registry import AGENTS, STEPS, Step

_FREE_BUILTINS = frozenset(
    {
        *("now", "uuid", "random", "sleep", "sleep_until", "timeout", "ask", "hold", "release"),
        *("emit", "log", "progress", "on_failure", "repair_history"),
    }
)
"""The names of our own steps, except children: no effects. A name that is missing would count as one."""
CHILD = "spawn:"
_FREE_PREFIXES = ("receive:", "result:", "cancel:", "patched:")
_SAYS: dict[StepKind | None, bool] = {StepKind.DECISION: False, StepKind.READ: False, StepKind.ACTION: True}
"""Whether a recorded step kind is an effect. For a kind not listed, or none, the declaration decides."""


Begin = Callable[[Callable[[], Awaitable[None]]], Awaitable[None]]


class ProtectionLevel(IntEnum):
    """How strongly a start is protected against being repeated."""

    NONE = 0
    KEYED = 1
    NON_RESUMABLE = 2

    @staticmethod
    def of_step(step: Step) -> ProtectionLevel:
        """Return the protection that a step declares."""
        if step.effect is None:
            return ProtectionLevel.NONE
        return ProtectionLevel.KEYED if step.effect.resumable else ProtectionLevel.NON_RESUMABLE

    @staticmethod
    def of_start(start: Start) -> ProtectionLevel:
        """Return the protection that a start was made with."""
        if start.is_protected:
            return ProtectionLevel.NON_RESUMABLE
        return ProtectionLevel.KEYED if start.key else ProtectionLevel.NONE


async def _begin(wait: Callable[[], Awaitable[None]]) -> None:
    await wait()


class StepLookup:
    """A call that searches for its record, with what the error message needs if it is refused.

    `is_after_redo`: in a retried run, something that had failed was done again before this call was made.
    `where` returns the call site. `begin` is given a wait, and awaits it until a start that was found may
    continue.
    """

    __slots__ = ("begin", "call", "execution", "fingerprint", "is_after_redo", "level", "position", "where")

    def __init__(
        self,
        execution: Running,
        position: StepPosition,
        fingerprint: Fingerprint | None,
        *,
        where: Callable[[], str],
        aliases: tuple[str, ...] = (),
        is_effect: bool = False,
        explicit_id: str | None = None,
        child: str | None = None,
        shown: dict[str, str] | None = None,
        level: ProtectionLevel = ProtectionLevel.NONE,
        begin: Begin | None = None,
    ) -> None:
        self.execution, self.position, self.fingerprint, self.where = execution, position, fingerprint, where
        self.level, self.begin = level, begin or _begin
        self.is_after_redo = False
        self.call = StepCall(
            positions=(position.id, *(position.id_under(alias) for alias in aliases)),
            names=(position.name, *aliases),
            f=fingerprint.digest.hex() if fingerprint is not None else "",
            explicit_id=explicit_id,
            child=child,
            is_effect=is_effect,
            shown=shown or {},
        )

    def keep_where(self) -> None:
        """Read the call site while it is on the stack: an effect may be refused later, while it waits."""
        if self.call.is_effect:
            where = self.where()
            self.where = lambda: where


def is_effect_step(step: Step) -> bool:
    """Return whether a declared step acts on the outside world: a repetition would be visible."""
    return not step.reads_only or step.effect is not None


def is_effect_name(name: str) -> bool:
    """Return whether a recorded step of this name counts as an effect; an undeclared one does."""
    known = _declared(name)
    if known:
        # One declaration that acts is enough: in doubt, the run stops instead of repeating an effect.
        return any(map(is_effect_step, known))
    return name not in _FREE_BUILTINS and not name.startswith(_FREE_PREFIXES)


def is_unknown(name: str) -> bool:
    """Return whether the code no longer declares a step of this recorded name: deleted or renamed."""
    built_in = name in _FREE_BUILTINS or name.startswith((*_FREE_PREFIXES, CHILD))
    return not built_in and not _declared(name)


def _declared(name: str) -> list[Step]:
    return [
        step
        for one in STEPS.values()
        if isinstance(step := getattr(one, "__ninelives__", None), Step)
        and (step.name == name or name in step.aliases)
    ]


def is_effect(found: Claimed) -> bool:
    """Return whether a record is an effect's: by its own step kind, else by today's declaration."""
    said = _SAYS.get(found.step_kind)
    if said is not None:
        return said
    try:
        return is_effect_name(parse_step_id(found.step).name)
    except BadName:
        return False


def passed_over(execution: Running, search: StepLookup | None = None) -> Claimed | None:
    """Return the earliest recorded effect that no call has claimed and `forgets=` does not name.

    With `search`, one that keeps this call from being started: not every effect does in a retried run.
    """
    claims, forgets = execution.claims, forgotten(execution)

    def is_missed(found: Claimed) -> bool:
        name = step_name(found.step)
        what = (name, found.step_kind)  # the same step may have been declared a read for some of its records
        known = claims.effects.get(what)
        if known is None:
            known = claims.effects[what] = is_effect(found)
        return known and name not in forgets and not is_reaction(execution, found, search)

    return claims.passed_over(is_missed)


def is_reaction(execution: Running, found: Claimed, search: StepLookup | None = None) -> bool:
    """Return whether an unclaimed record of a retried run is a reaction to a failure, and holds up no call.

    If the failed step, which is done again, does not fail again, the code never calls it. It must have begun
    after the failure, and today's code must declare its step: else what is called now could be that step,
    renamed. A call that was made after a step was done again is another call, whatever its
    arguments. One that was made before must itself do again what failed: code that ran beside the failure
    may have been edited.
    """
    if not execution.replay.dropped or not execution.claims.may_react(found):
        return False
    name = step_name(found.step)
    if is_unknown(name) or name.removeprefix(CHILD) not in (AGENTS if name.startswith(CHILD) else (name,)):
        return False
    if search is None:
        return execution.claims.is_redone()
    return search.is_after_redo or execution.claims.is_redo(search.call)


def passed_undo(execution: Running) -> tuple[str, Undo] | None:
    """Return a compensation of this turn, by its step, that no call has claimed and `forgets=` omits."""
    forgets = forgotten(execution)
    for step, body in execution.replay.undos.items():
        # An earlier turn registered what is carried over; this turn's code never makes that call.
        if not step.startswith(CARRIED) and (undo := read_undo(body)).action and undo.action not in forgets:
            return step, undo
    return None


def forgotten(execution: Running) -> tuple[str, ...]:
    """Return the names of steps whose effects the run's agent drops on purpose (`forgets=`)."""
    agent = AGENTS.get(execution.run.agent)
    return agent.forgets if agent is not None else ()


# Refusals --------------------------------------------------------------------------------------------


def refuse(search: StepLookup, missed: Claimed) -> None:
    """Stop the run before an effect starts, because a recorded effect was passed over."""
    claims = search.execution.claims
    # The more precise message, if the call itself has a record with other arguments.
    for position in search.call.positions:
        found = claims.at(position)
        if found is not None and is_effect(found) and found.body.f != search.call.f:
            search.execution.seal(changed(search, found))
            return
    search.execution.seal(not_claimed(search, missed))


def changed(search: StepLookup, found: Claimed) -> Divergence:
    """Return the error for a call whose arguments differ from those recorded at its position."""
    fingerprint: Fingerprint = search.fingerprint or Fingerprint(b"", b"{}")
    run, where = search.execution.run.id, search.where()
    if isinstance(found, Start):
        return changed_start(found.body, fingerprint, run=run, step=found.step, where=where)
    return changed_arguments(found, fingerprint, run=run, where=where)


def weaker(search: StepLookup, found: Start) -> Divergence:
    """Return the error for a start that the code would now repeat with weaker protection than it had."""
    was = "non-resumable" if found.is_protected else f"under the key {found.key!r}"
    keep, where = "resumable=False" if found.is_protected else "its key=", search.where()
    return Divergence(
        f"the code at {where} would start this step again; but it was started as {was}, "
        "and it is not known what came of that",
        where=where,
        run=search.execution.run.id,
        step=found.step,
        remedy=f"Nothing was executed. Put {keep} back until this run is over",
    )


def not_claimed(search: StepLookup, missed: Claimed) -> Divergence:
    """Return the error for an effect that would start although a recorded one was passed over."""
    branch, name, _ = parse_step_id(missed.step)
    new, where = search.position.name, search.where()
    if name != new:
        first = _if_renamed(name, new)
    else:
        has_id = search.call.explicit_id is not None or branch.startswith(ID_MARK)
        first = f"If {name} has another id= now, put the old one back; " if has_id else ""
    return Divergence(
        f"the code at {where} would start {new} now, but {not_called(missed)}",
        where=where,
        run=search.execution.run.id,
        step=missed.step,
        remedy=f"Nothing was executed. {first}"
        f'If the code gives {name} up on purpose, declare @nl.agent(forgets=["{name}"]); '
        f'if {new} was inserted before {name} or stands for it, write `if nl.patched("{new}"):` around it, '
        "with the old code under `else:`; "
        "else restore the old code",
    )


def wrapped(position: StepPosition, kind: StepKind, inner: Step) -> Divergence | None:
    """Return the error for an effect that is called inside a read; None if no record of it is unclaimed.

    What is called inside a step is part of its body and finds no record: not even `forgets=` helps.
    """
    names, execution = (inner.name, *inner.aliases), position.execution
    missed = execution.claims.passed_over(lambda one: step_name(one.step) in names and is_effect(one))
    if missed is None:
        return None
    return Divergence(
        f"the action {inner.name} is called inside the {read_text(kind)} {position.name}, "
        f"but {not_called(missed)}",
        run=execution.run.id,
        step=missed.step,
        remedy=f"The action was not executed. Call {inner.name} from the agent, where its record is found",
    )


def read_text(kind: StepKind) -> str:
    """Say what a step that is no effect was declared as."""
    return "decision" if kind is StepKind.DECISION else "reads_only action"


def left_in_turn(missed: Claimed, run: str) -> Divergence:
    """Return the error for a turn that would end although a recorded effect was passed over."""
    name = parse_step_id(missed.step).name
    return Divergence(
        f"the code ends its turn with nl.next_turn(), but {not_called(missed)} in a later turn",
        run=run,
        step=missed.step,
        remedy="Nothing was executed. Put the call back before nl.next_turn() until this turn is over; "
        f"if the code gives {name} up on purpose, or calls it later under the key= under which it was done, "
        f'declare @nl.agent(forgets=["{name}"])',
    )


def not_called(missed: Claimed) -> str:
    """Say which recorded effect no call has claimed, and what that could lead to."""
    arguments = ", ".join(f"{name}={value}" for name, value in missed.body.a.items())
    became = "was started, and it is not known what came of that" if isinstance(missed, Start) else "was done"
    return (
        f"{step_text(missed.step)}({arguments}), which {became} (record {missed.seq}), "
        "was not called by this code: it could be done a second time"
    )


def _if_renamed(old: str, new: str) -> str:
    """Return the remedy by which a renamed step, or a child's renamed agent, keeps its records."""
    was_child, is_child = old.startswith(CHILD), new.startswith(CHILD)
    if was_child and is_child:
        old, new = old.removeprefix(CHILD), new.removeprefix(CHILD)
        return f'If the agent {new} is {old} renamed, declare it with @nl.agent(name="{old}"); '
    if was_child or is_child:
        return ""  # a step cannot have been renamed to a child, nor a child to a step
    return f'If {new} is {old} renamed, declare it with aliases=["{old}"]; '
