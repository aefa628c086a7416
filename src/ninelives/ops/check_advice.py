"""What `check` says to write about recorded steps that the new code did not call. No I/O."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from ninelives.core.journal.replay import step_name
from ninelives.core.model.run import Journal
from ninelives.core.step_ids import read_step_id
from ninelives.engine.run import lookup
from ninelives.engine.run.execution import Execution
from ninelives.engine.spec.registry import AGENTS


def if_renamed(steps: Sequence[str]) -> str:
    """Return what to write if recorded steps that the code no longer declares were renamed."""
    names = sorted({name for step in steps if lookup.is_unknown(name := step_name(step))})
    return "; ".join(f'If {name} was renamed, declare the step with aliases=["{name}"]' for name in names)


def if_unreached(effects: Sequence[str], left_out: Sequence[str], *, gone: Sequence[str]) -> Iterator[str]:
    """Yield what to write about recorded effects that were not called; `gone`: they will not be called.

    An effect whose step is still declared is probably called after the new step: to give it up is no remedy.
    """
    names = sorted({name for step in effects if _is_undeclared(name := step_name(step)) or step in gone})
    kept = sorted({step_name(step) for step in effects} - set(names))
    if kept and any(lookup.is_unknown(step_name(step)) for step in (*left_out, *effects)):
        yield "First declare the aliases= of what was renamed, and check again"
    if kept:
        yield f"{', '.join(kept)}: nothing to write if the code still calls it after the new step"
    if names:
        yield f"If you dropped it on purpose, declare @nl.agent(forgets={json.dumps(names)})"


def _is_undeclared(name: str) -> bool:
    if name.startswith(lookup.CHILD):
        return name.removeprefix(lookup.CHILD) not in AGENTS
    return lookup.is_unknown(name)


def passed(journal: Journal, execution: Execution, effects: Sequence[str]) -> list[str]:
    """Return the effects after which the code has called a later recorded step of the same branch."""
    last: dict[str, int] = {}
    unclaimed = {one.step: one.seq for one in execution.claims.unclaimed()}
    for record in journal.records:
        found = read_step_id(record.step)
        if found is not None and record.step not in unclaimed:
            last[found.branch] = record.seq
    branches = {step: found.branch for step in effects if (found := read_step_id(step)) is not None}
    return [step for step, branch in branches.items() if last.get(branch, -1) > unclaimed[step]]
