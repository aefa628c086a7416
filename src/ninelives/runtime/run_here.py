"""Create a run as the property of this process's session, work on it here, and watch it to its end."""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

from ninelives.core.model.run import NewRun
from ninelives.core.model.run import RunRow as Row
from ninelives.runtime.run import Run
from ninelives.runtime.store_calls import StoreCalls


class LocalWorkers(StoreCalls, Protocol):
    """What `RunHere` needs of a runtime."""

    async def create_here(self, new: NewRun, handle: Run, session: str) -> Row:
        """Create a run that belongs to the session, or return the run that has its id."""

    def wake(self) -> None:
        """Make the workers check for work now."""


class RunHere:
    """One call of `Runtime.run`. Nothing of it is durable before a session has begun and created the run."""

    def __init__(self, runtime: LocalWorkers, new: NewRun) -> None:
        self._runtime, self._new, self.handle = runtime, new, Run(runtime, new.id)
        self._watching: asyncio.Task[Any] | None = None

    @property
    def is_created(self) -> bool:
        """Whether the run exists: `create` made it, or found it."""
        return self._watching is not None

    @property
    def is_over(self) -> bool:
        """Whether no more work can be done for the run here."""
        return self.handle.is_over or (self._watching is not None and self._watching.done())

    async def create(self, session: str) -> Row | None:
        """Create the run and return its row; None when it existed already and is not the session's.

        Raises UsageError; LeaseLost; what else the store raises.
        """
        row = await self._runtime.create_here(self._new, self.handle, session)
        self._watching = asyncio.create_task(self.handle.result())
        self._watching.add_done_callback(self._note_end)
        return row if row.session == session else None

    def _note_end(self, watched: asyncio.Task[Any]) -> None:
        if not watched.cancelled():
            watched.exception()  # mark it as retrieved: the caller may have left with another error
        self._runtime.wake()

    async def result(self) -> Any:
        """Return the run's result. Raises as `Run.result` does."""
        return await (self._watching or self.handle.result())

    def abandon(self) -> None:
        """Stop watching the run."""
        if self._watching is not None:
            self._watching.cancel()
