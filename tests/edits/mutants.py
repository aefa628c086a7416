"""Planted bugs: each rule of step identity, switched off. The judge must turn red for every one of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from ninelives.core.ids import positional_key
from ninelives.core.journal import matching
from ninelives.core.journal.matching import RecordClaims
from ninelives.core.journal.replay import Replay
from ninelives.core.model.run import Kind
from ninelives.core.rules import dedup
from ninelives.engine import context
from ninelives.engine.agent import decorators
from ninelives.engine.context import Branch
from ninelives.engine.protected import non_resumable, open_starts
from ninelives.engine.run import identity, lookup
from ninelives.engine.run.delivery import Delivery
from ninelives.engine.run.execution import Execution
from ninelives.engine.spec import registry
from ninelives.engine.worker.executor import Executor
from ninelives.ops import check
from ninelives.ops.check import CheckFinding, Fit
from tests.edits.turns import OVER_TURNS

Mutant = Callable[[pytest.MonkeyPatch], None]
MUTANTS: dict[str, Mutant] = {}
"""How each bug is planted."""
SHOWN_BY: dict[str, frozenset[str]] = {}
"""The edits of which one must be made for a bug to show; none: any."""


def _mutant(*edits: str) -> Callable[[Mutant], Mutant]:
    def note(plant: Mutant) -> Mutant:
        MUTANTS[plant.__name__], SHOWN_BY[plant.__name__] = plant, frozenset(edits)
        return plant

    return note


@_mutant()
def found_by_position_only(patch: pytest.MonkeyPatch) -> None:
    """A call that has moved does not find its record."""
    patch.setattr(RecordClaims, "earliest_match", lambda *_: None)


@_mutant()
def not_at_rest(patch: pytest.MonkeyPatch) -> None:
    """A call that is not at its place is judged at once, while other branches have still to claim theirs."""

    async def seek(self: Any, asking: Any) -> Any:
        known = self._execution.claims
        found = known.earliest_match(asking.call)
        if found is not None:
            return known.take(found[1])
        missed = lookup.passed_over(self._execution) if asking.call.is_effect else None
        if missed is not None:
            lookup.refuse(asking, missed)
            await self._execution.forever()
        return None

    patch.setattr(Delivery, "seek", seek)


@_mutant()
def nothing_is_passed_over(patch: pytest.MonkeyPatch) -> None:
    """A fresh effect starts although one on record was not called."""
    patch.setattr(lookup, "passed_over", lambda *_: None)


@_mutant("remove_effect", "change_effect", "rename_effect")
def starts_are_not_missed(patch: pytest.MonkeyPatch) -> None:
    """A fresh effect starts although one that was started was not called."""
    patch.setattr(matching, "is_guarded", lambda found: not isinstance(found, matching.Start))


@_mutant()
def any_arguments(patch: pytest.MonkeyPatch) -> None:
    """A call takes the record at its place, whatever it was asked for with."""
    patch.setattr(matching, "is_same_call", lambda *_: True)


@_mutant()
def claimed_twice(patch: pytest.MonkeyPatch) -> None:
    """A record that was claimed can be claimed again, by what it is."""
    original = Replay.take

    def take(self: Any, step: str) -> Any:
        found = original(self, step)
        if found is not None and not hasattr(self, "_again"):
            self._again = self._outcomes[step] = found
            self.left += 1
        return found

    patch.setattr(Replay, "take", take)


@_mutant("rename_with_alias")
def aliases_do_not_reach_keys(patch: pytest.MonkeyPatch) -> None:
    """A key belongs to the name of its action."""
    patch.setattr(dedup, "is_same_action", lambda known, op: known.action == op.action)


@_mutant("reorder_arms", "forget_effect")
def ids_are_shared(patch: pytest.MonkeyPatch) -> None:
    """A fresh call takes the id of its place, whatever is on record under it."""
    patch.setattr(identity, "unshared", lambda *_: None)


@_mutant()
def branches_are_not_numbered(patch: pytest.MonkeyPatch) -> None:
    """A branch that is entered again is the same branch, and its calls have the same ids."""
    ids_are_shared(patch)
    original = Branch.child

    def child(self: Branch, name: str) -> Branch:
        return Branch(f"{self.name}/{name}") if name.startswith("=") else original(self, name)

    patch.setattr(Branch, "child", child)


@_mutant(*OVER_TURNS, "reorder", "remove_effect")
def turns_end_over_what_was_done(patch: pytest.MonkeyPatch) -> None:
    """A turn ends although an effect on record was not called: the next one would not find it."""
    original = Executor._settle_leftovers

    async def settle(self: Any, execution: Any, *, is_turn: bool) -> bool:
        return await original(self, execution, is_turn=False)

    patch.setattr(Executor, "_settle_leftovers", settle)
    check_does_not_know_turns(patch)


@_mutant(*OVER_TURNS, "reorder", "remove_effect")
def check_does_not_know_turns(patch: pytest.MonkeyPatch) -> None:
    """The check lets a turn end over what was done."""
    patch.setattr(check, "NextTurn", type(None))


@_mutant()
def keys_do_not_say_the_turn(patch: pytest.MonkeyPatch) -> None:
    """Calls at the same place of two turns have one key."""
    patch.setattr(context, "positional_key", lambda run, _turn, *place: positional_key(run, 0, *place))


@_mutant("change_key", "add_key", "drop_key")
def old_keys_are_not_looked_up(patch: pytest.MonkeyPatch) -> None:
    """What was started under another key goes on under the present one."""

    async def under(act: Any, start: Any, key: Any) -> Any:
        act.use_key(key)
        return await non_resumable._carry_out(act)

    patch.setattr(non_resumable, "_under_old_key", under)


@_mutant("remove_effect")
def starts_are_forgotten_at_the_end(patch: pytest.MonkeyPatch) -> None:
    """A run ends although nobody knows what became of something that it started."""
    patch.setattr(open_starts, "unclaimed", lambda _: [])


@_mutant("change_kind")
def less_care_is_enough(patch: pytest.MonkeyPatch) -> None:
    """What was started as non-resumable is started again as resumable."""
    original = matching._start
    patch.setattr(matching, "_start", lambda *args: replace(original(*args), is_protected=False))


@_mutant("forget_effect")
def nothing_is_forgotten_on_purpose(patch: pytest.MonkeyPatch) -> None:
    """What the agent gives up on purpose counts as passed over."""
    original = registry.make_agent

    def make(*args: Any, **options: Any) -> Any:
        return replace(original(*args, **options), forgets=())

    patch.setattr(decorators, "make_agent", make)


@_mutant("patch_effect")
def every_run_is_patched(patch: pytest.MonkeyPatch) -> None:
    """Code that was added is for runs that have come past it, too."""
    patch.setattr(identity, "has_gone_on", lambda _: False)


@_mutant("patch_effect")
def patches_are_judged_again(patch: pytest.MonkeyPatch) -> None:
    """Whether a run has come past a patch is not remembered."""
    original = Execution.note

    def note(self: Any, kind: Kind, step: str, *rest: Any) -> None:
        if "patched:" not in step:
            original(self, kind, step, *rest)

    patch.setattr(Execution, "note", note)


@_mutant("split", "add_effect", "change_effect")
def check_stops_at_once(patch: pytest.MonkeyPatch) -> None:
    """The check is over where the first branch comes to something new."""

    async def stop(self: Any, execution: Any) -> None:
        self.end(execution)
        await execution.forever()

    patch.setattr(check._Frontier, "__call__", stop)


@_mutant()
def check_fits_all(patch: pytest.MonkeyPatch) -> None:
    """The check says of a run that diverges that it fits."""
    patch.setattr(
        check, "_finding", lambda run, _fit, _why: CheckFinding(run=run.id, agent=run.agent, fit=Fit.FITS)
    )


@_mutant("wrap", "wrap_all", "rename_branch", "unwrap")
def children_are_found_by_place_only(patch: pytest.MonkeyPatch) -> None:
    """That a child may have been born is not on record before it is."""
    original = Execution.note

    def note(self: Any, kind: Kind, step: str, *rest: Any) -> None:
        if not (kind is Kind.INTENT and "spawn:" in step):
            original(self, kind, step, *rest)

    patch.setattr(Execution, "note", note)
