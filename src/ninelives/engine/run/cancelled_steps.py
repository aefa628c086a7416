"""Steps that the run's code cancelled in an earlier execution: on replay it cancels them again.

Until it does, they wait. A run that becomes quiescent without that (nothing in it runs, waits or is still to
be delivered) would wait without end: that is a divergence, which escalates as any other. Nothing is recorded
here: if we die, the next worker finds the same.
"""

from __future__ import annotations

from ninelives.core.errors import Divergence
from ninelives.core.journal.replay import Recorded
from ninelives.engine.run.execution import Execution

PATIENCE_SECONDS = 1.0
"""How long a run must be idle before a missing cancellation is a divergence: other code may cancel."""


class Withdrawals:
    """The withdrawn steps of one execution that wait to be cancelled."""

    def __init__(self, execution: Execution) -> None:
        self._execution = execution
        self._all: dict[int, Recorded] = {}
        self._since: float | None = None
        execution.delivery.at_rest += (self._consider,)

    async def wait(self, found: Recorded) -> None:
        """Wait until the run's code cancels the step. Never returns."""
        self._all[found.seq] = found
        self._execution.delivery.look()
        try:
            await self._execution.forever()
        finally:
            del self._all[found.seq]

    def _consider(self) -> None:
        """Seal the execution if nothing in it can move any more. Called when its code is quiescent."""
        execution = self._execution
        if execution.sealed is not None or execution.has_ended or not self._all:
            return
        if execution.stopped is not None or execution.has_bodies or execution.has_waits:
            self._since = None  # when a body or a wait ends, we are called again
            return
        now = execution.loop.time()
        is_busy = execution.when_answered() is not None or execution.delivery.has_foreign()
        if self._since is None or is_busy:
            self._since = now
        if now < self._since + PATIENCE_SECONDS:
            execution.delivery.look_later()
            return
        execution.seal(_divergence(execution.run.id, self._all[min(self._all)]))


async def withdrawn(execution: Execution, found: Recorded) -> None:
    """Wait until the run's code cancels a step, as it did before. Never returns."""
    await execution.part(Withdrawals).wait(found)


def _divergence(run: str, found: Recorded) -> Divergence:
    return Divergence(
        f"record {found.seq} says that this step was cancelled, and now nothing cancels it: "
        "the run would wait for ever",
        run=run,
        step=found.step,
        remedy="Nothing was executed. Put back the code that cancelled it, or give the step another name "
        "so that it runs anew; a body must not cancel its own task",
    )
