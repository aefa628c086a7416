"""`nl.declassify`: remove labels of a run's taint, as a recorded action that policies judge.

The labels themselves are folded from the records (`core.governance.taint`); here is what removes and carries
them. A declassification removes what was there when it was called: data that other branches read while it
waited for an approval keeps its label. If we die before its record is durable, it was not made, and is judged
again.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextvars import ContextVar
from typing import Any

from ninelives.core.errors import UsageError
from ninelives.core.governance.taint import DECLASSIFY, NO_CHANGE, Taint, TaintChange, check_labels, of_run
from ninelives.core.ids import step_id
from ninelives.core.journal.replay import CARRIED, read_body, write_body
from ninelives.core.model.run import Kind, Record
from ninelives.core.model.totals import BUILTIN, OUTCOMES
from ninelives.engine.agent.decorators import action
from ninelives.engine.commit.ticket import Draft
from ninelives.engine.context import FRAME
from ninelives.engine.run.current import require_agent
from ninelives.engine.run.execution import Execution
from ninelives.engine.step.other_loops import at_home

_seen: ContextVar[dict[str, int]] = ContextVar("ninelives_taint_seen")


def of_records(records: Iterable[Record]) -> Taint:
    """Return the taint of a turn's records. Raises Corrupt."""
    found = Taint()
    for record in records:
        if record.kind in OUTCOMES:
            body = read_body(record)
            found.change(body.o, body.x)
    return found


def carried(execution: Execution) -> list[Draft]:
    """Return the record that carries the labels into the next turn, if there are any."""
    if not execution.replay.taint.counts:
        return []
    taint = TaintChange(tuple(sorted(execution.replay.taint.counts)))
    return [(Kind.WITHDRAWN, step_id(CARRIED, "taint", 0), write_body(None, taint=taint), (), BUILTIN)]


def carried_in(records: Iterable[Record]) -> set[str]:
    """Return the labels that a turn got from the turn before. Raises Corrupt."""
    found = (read_body(one).o for one in records if one.kind in OUTCOMES and one.step.startswith(CARRIED))
    return set().union(*found)


@at_home
async def declassify(labels: str | Iterable[str], *, why: str) -> None:
    """Remove labels from the taint of this run, because what was read from there has been checked.

    It is an action, `nl.declassify`, which a policy may deny or have a person approve. Raises UsageError for
    a name that is no label, without a reason, and for a label that the run was started with: those stay.
    """
    execution = require_agent("nl.declassify()", "Call it in the agent")
    names = check_labels(labels, "nl.declassify()")
    if not names or not why.strip():
        raise UsageError(
            "nl.declassify() without a label, or without a reason",
            run=execution.run.id,
            remedy='Write nl.declassify("web", why="a person has read it")',
        )
    if kept := sorted(of_run(execution.run.labels).intersection(names)):
        raise UsageError(
            f"nl.declassify({kept[0]!r}): the run was started with data of this origin",
            run=execution.run.id,
            remedy="Such labels stay. Check the data before the run is started, and start it without them",
        )
    token = _seen.set(dict(execution.replay.taint.counts))
    try:
        await _declassify(list(names), why)
    finally:
        _seen.reset(token)


@action(name=DECLASSIFY, cost=0)
async def _declassify(labels: list[str], why: str) -> list[str]:  # noqa: ARG001 (recorded)
    frame: Any = FRAME.get()
    taint = frame.position.execution.replay.taint
    # If a person was asked in an earlier life: what was there then, not what is there now.
    removes = taint.unchanged_since(taint.requested.get(frame.position.id, _seen.get()), labels)
    frame.taint = TaintChange((frame.taint or NO_CHANGE).adds, removes)
    return list(removes)
