"""The workload of `benchmarks.recovery` on DBOS, for its own virtual environment: nothing of ours is here.

`python peer.py DATABASE RUNS`; with DIE in the environment it lives the life that is killed.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import signal
import sys
from pathlib import Path
from typing import Any

STEPS, KILLED_IN = 20, 10
_arrived = 0
_dbos: Any = importlib.import_module("dbos")


async def _work(number: int, runs: int) -> int:
    global _arrived  # noqa: PLW0603
    if number == KILLED_IN and os.environ.get("DIE"):
        _arrived += 1
        if _arrived == runs:
            os.kill(os.getpid(), signal.SIGKILL)
        await asyncio.Event().wait()
    return number


work = _dbos.DBOS.step()(_work)


async def _twenty(runs: int) -> int:
    total = 0
    for number in range(STEPS):
        total += await work(number, runs)
    return total


twenty = _dbos.DBOS.workflow()(_twenty)


async def _live(runs: int) -> None:
    if os.environ.get("DIE"):
        for number in range(runs):
            with _dbos.SetWorkflowID(f"run-{number}"):
                await _dbos.DBOS.start_workflow_async(twenty, runs)
    for number in range(runs):  # in turn: it asks by polls, and a hundred at once would cost it
        handle = await _dbos.DBOS.retrieve_workflow_async(f"run-{number}")
        assert await handle.get_result(polling_interval_sec=0.02) == sum(range(STEPS))


def main() -> None:
    """Launch, which recovers what was under way, and wait until all runs are complete."""
    database, runs = Path(sys.argv[1]), int(sys.argv[2])
    config = {"name": "peer", "system_database_url": f"sqlite:///{database}", "log_level": "ERROR"}
    _dbos.DBOS(config=config)
    _dbos.DBOS.launch()
    asyncio.run(_live(runs))
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
