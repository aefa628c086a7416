"""Where runs are, as commands tell it."""

from __future__ import annotations

import ninelives as nl
from ninelives.core.model.run import Control, RunQuery, State
from ninelives.testing import Sandbox
from ninelives.views.position import position, summaries


def test_a_run_that_completed_while_it_was_being_paused_is_completed() -> None:
    with Sandbox() as sandbox:

        @nl.action
        async def last() -> str:
            sandbox.store.control_run("late", Control.PAUSE)
            return "done"

        @nl.agent
        async def late() -> str:
            return await last()

        assert sandbox.run(late, id="late") == "done"
        row = sandbox.store.read_run("late")
        assert row is not None
        assert (row.state, row.paused) == (State.COMPLETED, True)
        (summary,) = summaries(sandbox.store, RunQuery())
        assert (summary.status, summary.paused) == (State.COMPLETED, False)
        assert not position(sandbox.store, "late")[0].paused
