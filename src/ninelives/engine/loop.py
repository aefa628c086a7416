"""Commits for coroutines: await a verdict without holding up the event loop.

A batch that was committed comes back in one hand-over, however many coroutines wait for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress

from ninelives.core.model import Verdict
from ninelives.engine.committer import Committer
from ninelives.engine.ticket import NOTHING, Draft, Extras, Tail, Ticket


class LoopCommits:
    """The committer, as seen from one event loop."""

    def __init__(
        self, committer: Committer, loop: asyncio.AbstractEventLoop, *, is_dedicated: bool = False
    ) -> None:
        self._committer, self._loop, self._is_dedicated = committer, loop, is_dedicated
        self._waiting: dict[Ticket, asyncio.Future[Verdict]] = {}

    def start(
        self, tail: Tail, drafts: Sequence[Draft] = (), extras: Extras = NOTHING
    ) -> asyncio.Future[Verdict]:
        """Submit, and return the verdict to come; it may have come already."""
        waiting: asyncio.Future[Verdict] = self._loop.create_future()
        if self._is_dedicated and not self._waiting and not getattr(self._loop, "_ready", True):
            # Nobody else has anything to do: two changes of thread would only cost time.
            waiting.set_result(self._committer.commit(tail, drafts, extras))
        else:
            self._waiting[self._committer.submit(tail, drafts, extras, home=self)] = waiting
        return waiting

    async def commit(self, tail: Tail, drafts: Sequence[Draft] = (), extras: Extras = NOTHING) -> Verdict:
        """Submit and await the verdict. Cancelling the wait does not take the commit back."""
        return await self.start(tail, drafts, extras)

    def deliver(self, tickets: Sequence[Ticket]) -> None:
        """Bring answered tickets to the loop, from the committing thread."""
        with suppress(RuntimeError):  # the loop was closed, and with it all who waited
            self._loop.call_soon_threadsafe(self._arrive, tickets)

    def _arrive(self, tickets: Sequence[Ticket]) -> None:
        for ticket in tickets:
            waiting = self._waiting.pop(ticket)
            if waiting.done():
                continue
            if ticket.error is not None:
                waiting.set_exception(ticket.error)
            else:
                waiting.set_result(ticket.result())
