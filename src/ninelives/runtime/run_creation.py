"""Runs that are started at the same moment are created together, in one transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from ninelives.core.errors import UsageError
from ninelives.core.model.run import NewRun
from ninelives.core.model.run import RunRow as Row
from ninelives.store import Store

Create = Callable[[Store], list[Row | UsageError]]


class Starts:
    """Those who ask for a run now; one who no longer waits for his leaves that of the others alone."""

    def __init__(self, call: Callable[[Create], Awaitable[list[Row | UsageError]]]) -> None:
        self._call = call
        self._waiting: list[tuple[NewRun, asyncio.Future[Row]]] = []
        self._creating: set[asyncio.Task[None]] = set()

    async def create(self, new: NewRun) -> Row:
        """Create a run, or return the one that has its id. Raises UsageError, and what the store does."""
        created: asyncio.Future[Row] = asyncio.get_running_loop().create_future()
        self._waiting.append((new, created))
        if len(self._waiting) == 1:
            task = asyncio.create_task(self._create())  # begins when all have asked who do so in this round
            self._creating.add(task)
            task.add_done_callback(self._creating.discard)
        return await created

    async def over(self) -> None:
        """Wait until nothing is being created."""
        if self._creating:
            await asyncio.wait(self._creating)

    async def _create(self) -> None:
        batch, self._waiting = self._waiting, []
        answers: Sequence[Row | Exception]
        try:
            answers = await self._call(lambda store: store.create_runs([new for new, _ in batch]))
        except Exception as error:  # noqa: BLE001 (who waits gets it)
            answers = [error for _ in batch]
        for (_, created), answer in zip(batch, answers, strict=True):
            if created.done():
                continue
            if isinstance(answer, Exception):
                created.set_exception(answer)
            else:
                created.set_result(answer)
