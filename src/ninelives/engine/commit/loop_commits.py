"""Commits for coroutines: await a verdict without blocking the event loop.

A committed batch reaches the loop in one `call_soon_threadsafe`, however many coroutines wait for it.
Cancelling an await does not undo the commit. Errors always reach `Tail.judge`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Generator, Sequence
from contextlib import suppress
from typing import Protocol

from ninelives.core.errors import NineLivesError
from ninelives.core.model.commit import Outcome, Verdict
from ninelives.engine.commit.committer import Committer
from ninelives.engine.commit.ticket import NO_EXTRAS, Draft, Extras, Tail, Ticket

_POLL_SECONDS = 0.005
"""Maximum time we commit on the loop's own thread before yielding to its timers and sockets (checked after
each commit, so the current step and commit finish first)."""


class _VerdictAfterPoll:
    """Returns a known verdict after the event loop has polled its timers and sockets."""

    __slots__ = ("_ready", "_verdict")

    def __init__(self, verdict: Verdict, ready: Sequence[object] | None) -> None:
        self._verdict, self._ready = verdict, ready

    def __await__(self) -> Generator[None, None, Verdict]:
        yield  # as asyncio.sleep(0) does: a future would cost another iteration of the loop
        if self._ready:
            yield  # what became due is queued behind us; let it run before we commit on this thread again
        return self._verdict


class RunCommits(Protocol):
    """What an execution needs of its commits; see `LoopCommits`, whose methods these are."""

    def start(
        self, tail: Tail, drafts: Sequence[Draft] = (), extras: Extras = NO_EXTRAS
    ) -> asyncio.Future[Verdict]:
        """Submit, and return a future of the verdict."""

    def append(
        self, tail: Tail, draft: Draft, extras: Extras = NO_EXTRAS, *, is_single: bool
    ) -> Awaitable[Verdict] | None:
        """Submit one record; None when it has been committed already."""

    def commit_here(
        self, tail: Tail, drafts: Sequence[Draft], extras: Extras
    ) -> Verdict | asyncio.Future[Verdict]:
        """Submit; return the verdict if the loop is idle, else a future of it."""

    def all_answered(self, tail: Tail) -> asyncio.Future[None] | None:
        """Return a future that is done when all tickets so far have a verdict; None if they have one."""


class LoopCommits:
    """The committer's interface for one event loop."""

    def __init__(
        self, committer: Committer, loop: asyncio.AbstractEventLoop, *, is_dedicated: bool = False
    ) -> None:
        self._committer, self._loop = committer, loop
        # The loop's queue of ready callbacks, if the loop is dedicated to us and exposes it.
        self._ready: Sequence[object] | None = getattr(loop, "_ready", None) if is_dedicated else None
        self._waiting = 0
        self._polled_at = 0.0

    @property
    def is_waiting(self) -> bool:
        """Whether a submitted ticket has no verdict yet."""
        return self._waiting > 0

    def start(
        self, tail: Tail, drafts: Sequence[Draft] = (), extras: Extras = NO_EXTRAS
    ) -> asyncio.Future[Verdict]:
        """Submit, and return a future of the verdict."""
        # The future is set after the submit: a batch reaches this loop only by a later callback (`deliver`).
        ticket = self._committer.submit(tail, drafts, extras, home=self)
        tail.sent += 1
        self._waiting += 1
        ticket.waiting = waiting = self._loop.create_future()
        return waiting

    def all_answered(self, tail: Tail) -> asyncio.Future[None] | None:
        """Return a future that is done when all tickets so far have a verdict; None if they have one now."""
        if tail.sent == tail.answered:
            return None
        waiting: asyncio.Future[None] = self._loop.create_future()
        # A count is enough: the tickets of a run are answered in the order in which they were sent.
        tail.barriers = [*(tail.barriers or ()), (tail.sent, waiting)]
        return waiting

    def append(
        self, tail: Tail, draft: Draft, extras: Extras = NO_EXTRAS, *, is_single: bool
    ) -> Awaitable[Verdict] | None:
        """Submit one record; None when it has been committed already, on this thread.

        A single branch on an otherwise idle loop would only lose time by two thread switches, so it commits
        here. Every few milliseconds it returns an awaitable instead, so that the loop polls its timers and
        sockets.
        """
        # If anything else is ready, or a ticket is on its way, a sync on this thread would delay it.
        if not is_single or self._is_busy:
            return self.start(tail, (draft,), extras)
        verdict = self._committer.append(tail, draft, extras)
        if verdict is None:
            return self.start(tail, (draft,), extras)
        self._judge(tail, verdict)
        if tail.on_commit is not None and verdict.outcome is Outcome.COMMITTED:
            tail.on_commit((draft,), extras)
        # After the commit, not before: a slow sync counts as
        # time in which timers and sockets were not polled.
        now = self._loop.time()
        if now - self._polled_at < _POLL_SECONDS:
            return None
        self._polled_at = now
        return _VerdictAfterPoll(verdict, self._ready)

    def commit_here(
        self, tail: Tail, drafts: Sequence[Draft], extras: Extras
    ) -> Verdict | asyncio.Future[Verdict]:
        """Commit on this thread and return the verdict, if the loop is idle; else return a future of it."""
        if self._is_busy or len(drafts) != 1:
            return self.start(tail, drafts, extras)
        verdict = self._committer.append(tail, drafts[0], extras)
        if verdict is None:  # the store is away, or the record needs more: this thread must not wait for it
            return self.start(tail, drafts, extras)
        self._judge(tail, verdict)
        if tail.on_commit is not None and verdict.outcome is Outcome.COMMITTED:
            tail.on_commit(drafts, extras)
        return verdict

    @property
    def _is_busy(self) -> bool:
        """Whether the loop has anything else to do, or is shared with other code."""
        # With a ticket under way, a commit here could meet its
        # batch, and block this thread until that is durable.
        return self._ready is None or bool(self._ready) or self._waiting > 0

    def _judge(self, tail: Tail, verdict: Verdict) -> None:
        if verdict.outcome is not Outcome.COMMITTED and tail.judge is not None:
            tail.judge(verdict, None)

    async def commit(self, tail: Tail, drafts: Sequence[Draft] = (), extras: Extras = NO_EXTRAS) -> Verdict:
        """Submit and await the verdict. Cancelling the await does not undo the commit."""
        return await self.start(tail, drafts, extras)

    def deliver(self, tickets: Sequence[Ticket]) -> None:
        """Pass answered tickets to the loop; called on the committing thread."""
        with suppress(RuntimeError):  # the loop was closed, and all its waiting tasks with it
            self._loop.call_soon_threadsafe(self._arrive, tickets)

    def _arrive(self, tickets: Sequence[Ticket]) -> None:
        self._waiting -= len(tickets)
        for ticket in tickets:
            tail, verdict = ticket.tail, ticket.verdict
            if verdict is not None and verdict.outcome is Outcome.COMMITTED:
                if tail.on_commit is not None:
                    tail.on_commit(ticket.records, ticket.extras)
            elif tail.judge is not None:
                # The judge first: it seals the execution, and the task that wakes next must find it sealed.
                tail.judge(verdict, ticket.error)
            if ticket.waiting is not None:
                _settle(ticket.waiting, verdict, ticket.error)
            # After the future is set: code behind a barrier must find every earlier outcome settled.
            tail.answered += 1
            if tail.barriers is not None:
                _pass_barriers(tail, tail.barriers)


def _pass_barriers(tail: Tail, barriers: list[tuple[int, asyncio.Future[None]]]) -> None:
    while barriers and barriers[0][0] <= tail.answered:
        waiting = barriers.pop(0)[1]
        if not waiting.done():
            waiting.set_result(None)


def _settle(
    waiting: asyncio.Future[Verdict], verdict: Verdict | None, error: NineLivesError | None = None
) -> None:
    if waiting.done():
        return  # the waiting task was cancelled meanwhile
    if verdict is not None:
        waiting.set_result(verdict)
    elif error is not None:
        waiting.set_exception(error)
        waiting.exception()  # marks it retrieved: `Tail.judge` has the error even if no task waits
