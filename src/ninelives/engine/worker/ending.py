"""The end of a run: the only module that commits completed, failed and cancelled.

If we die before the commit, the run has not ended: the next worker replays it and ends it in the same way.
"""

from __future__ import annotations

from collections.abc import Sequence

from ninelives.core.governance.taint import TaintChange
from ninelives.core.journal.replay import write_body
from ninelives.core.model.commit import End, Outcome
from ninelives.core.model.run import Kind, State
from ninelives.core.model.totals import NO_FACTS, Facts, error_text
from ninelives.core.values.exceptions import encode_error
from ninelives.engine.agent import compensations
from ninelives.engine.commit.ticket import Draft, Extras, charging
from ninelives.engine.run.execution import Execution
from ninelives.engine.step.reservations import unsettled
from ninelives.engine.step.threads import landed


async def complete(execution: Execution, value: bytes) -> None:
    """End a run as completed, with its encoded result."""
    record = (Kind.END, "", write_body(None, value=value, taint=_taint(execution)))
    await execution.finish(record, Extras(change=End(State.COMPLETED), accounts=unsettled(execution)))


async def fail(execution: Execution, error: BaseException, *, after: Sequence[Draft] = ()) -> None:
    """End a run as failed with `error`; the records in `after` precede the end, in the same commit."""
    raised = error if isinstance(error, Exception) else RuntimeError(f"the agent ended with {error!r}")
    encoded, facts = encode_error(raised), Facts(error=error_text(raised))
    if not await _undoes(execution, State.FAILED, encoded, after, facts):
        await finish(execution, State.FAILED, encoded, after, facts)


async def cancel(execution: Execution) -> None:
    """End a run as cancelled, because its cancellation was requested."""
    if not await _undoes(execution, State.CANCELLED, None, (), NO_FACTS):
        await finish(execution, State.CANCELLED, None)


async def finish(
    execution: Execution,
    state: State,
    error: bytes | None,
    after: Sequence[Draft] = (),
    facts: Facts = NO_FACTS,
) -> None:
    """End a run that failed or was cancelled, with no compensation left to call."""
    drafts = list(after)
    if error is not None:
        drafts.append((Kind.END, "", write_body(None, error=error, taint=_taint(execution)), (), facts))
    change = End(State.FAILED if state is State.FAILED else State.CANCELLED)
    await execution.write(drafts, Extras(change=change, accounts=unsettled(execution)))


def _taint(execution: Execution) -> TaintChange | None:
    """Return what the end of a run says about where its data came from: its parent's record takes it over."""
    labels = execution.taint
    return TaintChange(tuple(sorted(labels))) if labels else None


async def _undoes(
    execution: Execution, state: State, error: bytes | None, after: Sequence[Draft], facts: Facts
) -> bool:
    """Record that compensations begin, if any are registered; the run ends after them. False if none are."""
    compensations.write_waiting(execution)
    if not execution.replay.kept:
        return False
    if not compensations.registered(execution.replay.kept):
        return False
    await landed(execution)
    undoing = (Kind.UNDOING, "", compensations.write_undoing(state, error), (), facts)
    # CRASH: recorded, and the run only undoes from here on; or not recorded, and the run ends here again.
    verdict = await execution.write([*after, undoing], charging(unsettled(execution)))
    if verdict.outcome is Outcome.COMMITTED:
        execution.undo()
    return True
