"""A run that is created here to be worked on here: born as its worker's session's, and watched to its end."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from ninelives.core.model.run import NewRun
from ninelives.core.model.run import RunRow as Row
from ninelives.runtime.run import Run

if TYPE_CHECKING:
    from ninelives.runtime.runtime import Runtime


class Birth:
    """One call of `Runtime.run`. Nothing of it is durable before a session has begun and bears it."""

    def __init__(self, runtime: Runtime, new: NewRun) -> None:
        self._runtime, self._new, self.handle = runtime, new, Run(runtime, new.id)
        self._watching: asyncio.Task[Any] | None = None

    @property
    def has_happened(self) -> bool:
        """Tell whether the run is there, from now on or from before."""
        return self._watching is not None

    @property
    def is_over(self) -> bool:
        """Tell whether there is nothing more to work on for it."""
        return self.handle.is_over or (self._watching is not None and self._watching.done())

    def bear(self, session: str) -> Row | None:
        """Create the run as the session's; None where it is not, since there was one already.

        Raises UsageError; LeaseLost; what else the store raises.
        """
        row = self._runtime.bear(self._new, self.handle, session)
        self._watching = asyncio.create_task(self.handle.result())
        self._watching.add_done_callback(self._note_end)
        return row if row.session == session else None

    def _note_end(self, watched: asyncio.Task[Any]) -> None:
        if not watched.cancelled():
            watched.exception()  # whoever has left meanwhile was told something else
        self._runtime.wake()

    async def result(self) -> Any:
        """Return what has become of the run. Raises as `Run.result` does."""
        return await (self._watching or self.handle.result())

    def abandon(self) -> None:
        """Watch it no more."""
        if self._watching is not None:
            self._watching.cancel()
