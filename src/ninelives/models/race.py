"""The requests of one attempt that are under way, and which of them answers.

The first request that answers wins; one that emits output wins with its first item, so that no reader gets
parts of two answers. All others are cancelled, and awaited before the answer is returned. A request that
fails by the way's fault is followed by the next way at once, unless another one is still under way.

If we die here, no outcome is recorded, and the next worker sends all of it again.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from contextvars import Context, copy_context
from typing import Any

from ninelives.core.errors import Transient
from ninelives.core.model_calls.faults import is_of_way
from ninelives.core.values.retry import retry_after_seconds
from ninelives.engine.context import FRAME, Frame, Running, WayFrame
from ninelives.engine.spec.registry import Step
from ninelives.models.known import KnownStep, KnownWay

LOGGER = logging.getLogger("ninelives")
LOSER_SECONDS = 1.0
"""How long a cancelled request may take to end before the answer is returned without it."""
_REACHED = 0.99
"""A cancellation after this share of the time limit comes from the limit."""


class Unanswered(Exception):
    """No way has answered: the race has the errors."""


class SentRequest:
    """One request under way. `is_hedge`: another one was. `tries`: its answer ends a rest of its way."""

    __slots__ = ("began", "is_cancelled", "is_hedge", "is_slow", "task", "timer", "tries", "way")

    def __init__(self, way: KnownWay, began: float, *, is_hedge: bool) -> None:
        self.way, self.began, self.tries = way, began, way.asks()
        self.is_hedge, self.is_cancelled, self.is_slow = is_hedge, False, False
        self.task: asyncio.Task[None] | None = None
        self.timer: asyncio.TimerHandle | None = None


class Race:
    """One attempt of a step. `ask` sends a request one way, by its number."""

    def __init__(
        self,
        execution: Running,
        step: Step,
        frame: Frame,
        known: KnownStep,
        ask: Callable[[int], Awaitable[Any]],
    ) -> None:
        loop = asyncio.get_running_loop()
        self._execution, self._step, self._frame, self._ask = execution, step, frame, ask
        self._loop, self._known, self._began = loop, known, loop.time()
        self._order = known.order(self._began)
        self._hedge_seconds = known.hedge_seconds(self._order[0])
        # Not the timer's: what a request calls must find the run, and the body that it belongs to.
        self._context = copy_context()
        self._under_way: list[SentRequest] = []
        self._ending: list[asyncio.Task[None]] = []
        self._done: asyncio.Future[None] = loop.create_future()
        self._timer: asyncio.TimerHandle | None = None
        self._emits: SentRequest | None = None
        self._is_refused = False
        self._value: Any = None
        self.errors: list[tuple[KnownWay, BaseException]] = []
        self.winner: SentRequest | None = None
        self.sent = self.hedges = self.lost = self.denied = 0
        self.hedged_ms: int | None = None

    async def answer(self) -> Any:
        """Return the first answer.

        Raises Unanswered; CancelledError, once all requests have ended.
        """
        if self._known.budget is not None:
            self._known.budget.called()
        try:
            self._send()
            self._arm()
            await self._done
        except asyncio.CancelledError:
            self._note_limit()
            self._cancel_others(None)
            await self._ended()
            raise
        finally:
            if self._timer is not None:
                self._timer.cancel()
            self._cancel_others(None)
        await self._ended()
        if self.winner is None:
            raise Unanswered
        return self._value

    # Sending ------------------------------------------------------------------------------------

    def _send(self) -> None:
        """Send a request the next way. With more requests than ways, the ways come round again."""
        way = self._order[self.sent % len(self._order)]
        request = SentRequest(way, self._loop.time(), is_hedge=bool(self._under_way))
        self.sent += 1
        self._under_way.append(request)
        context = self._context.copy()
        context.run(FRAME.set, WayFrame(self._frame, lambda: self._may_emit(request)))
        request.task = asyncio.Task(self._run(request), loop=self._loop, context=context)
        slow_seconds = request.way.slow_seconds
        if slow_seconds is not None:
            request.timer = self._loop.call_later(slow_seconds, self._note_slow, request, context=Context())

    def _arm(self) -> None:
        if self._hedge_seconds is not None:
            self._timer = self._loop.call_later(self._hedge_seconds, self._hedge, context=Context())

    def _hedge(self) -> None:
        """Send another request: no answer has come in time."""
        budget, self._timer = self._known.budget, None
        is_over = self._done.done() or self._emits is not None or self._execution.sealed is not None
        # Of the whole attempt: requests that fail slowly would else be followed by ever more of them.
        if is_over or budget is None or self.hedges + 1 >= self._known.most:
            return
        if budget.take():
            self.hedges += 1
            if self.hedged_ms is None:
                self.hedged_ms = int((self._loop.time() - self._began) * 1000)
            self._send()
        else:
            self.denied = 1
        self._arm()

    async def _run(self, request: SentRequest) -> None:
        value, error = None, None
        try:
            # Here, too: a process that was suspended may come to a second request after its lease's end.
            if not self._execution.has_lease:
                await self._execution.require_lease()
            value = await self._ask(request.way.number)
        except BaseException as caught:
            if isinstance(caught, GeneratorExit) and not self._is_running(request):
                raise  # the coroutine is closed or garbage-collected
            error = caught
        if request.timer is not None:
            request.timer.cancel()
        if request.is_cancelled or self._done.done():
            return
        self._under_way.remove(request)
        if error is None:
            self._answered(request, value)
        else:
            self._failed(request, error)

    def _is_running(self, request: SentRequest) -> bool:
        """Return whether the request's own task executes this code."""
        try:
            return asyncio.current_task() is request.task
        except RuntimeError:  # no loop
            return False

    # Ends ---------------------------------------------------------------------------------------

    def _answered(self, request: SentRequest, value: Any) -> None:
        way = request.way
        way.latencies.add(self._loop.time() - request.began)
        if way.breaker is not None and not request.is_slow:
            way.breaker.answered(tries=request.tries)
        self.winner, self._value = request, value
        self._done.set_result(None)

    def _failed(self, request: SentRequest, error: BaseException) -> None:
        if isinstance(error, asyncio.CancelledError):  # a client's own: the request was not cancelled
            lost = Transient(f"{request.way.name} ended in CancelledError, and no code cancelled it")
            lost.__cause__, error = error, lost
        self.errors.append((request.way, error))
        is_fault_of_way = is_of_way(error, self._step.retry)
        self._is_refused |= not is_fault_of_way
        if is_fault_of_way and isinstance(error, Exception):
            # Another way may answer now: the next call need not find out again.
            pause = retry_after_seconds(error, time.time())
            if pause is not None:
                request.way.limited_until = max(request.way.limited_until, self._loop.time() + pause)
        if request.way.breaker is not None:
            if is_fault_of_way:
                request.way.breaker.failed(self._loop.time(), tries=request.tries)
            else:
                request.way.breaker.left(tries=request.tries)
        if self._under_way:
            return
        if self._is_refused or self.sent >= len(self._order):
            self._done.set_result(None)
            return
        if self._emits is not None:
            self._emits = None
            self._execution.retract(self._frame.position.id)
        self._send()

    def _note_slow(self, request: SentRequest) -> None:
        request.is_slow = True
        if request.way.breaker is not None:
            request.way.breaker.was_slow(self._loop.time(), tries=request.tries)

    def _note_limit(self) -> None:
        """Count the time limit of the step, if that is what ended the attempt, as a failure of its ways."""
        limit, now = self._step.timeout_seconds, self._loop.time()
        if limit is None or now - self._began < limit * _REACHED:
            return
        for request in self._under_way:
            if request.way.breaker is not None:
                request.way.breaker.failed(now, tries=request.tries)
                request.tries = False

    def _may_emit(self, request: SentRequest) -> bool:
        """Return whether items of a request count: it is the first to emit, and wins by that."""
        if self._emits is None:
            if request is not self.winner and request not in self._under_way:
                return False  # it has failed, and a task that it started runs on
            self._emits = self.winner or request
            if asyncio.get_running_loop() is self._loop:
                self._cancel_others(self._emits)
            else:  # a body on another loop; tasks are cancelled on their own
                self._loop.call_soon_threadsafe(self._cancel_others, self._emits)
        return self._emits is request

    def _cancel_others(self, kept: SentRequest | None) -> None:
        now = self._loop.time()
        for request in tuple(self._under_way):
            if request is not kept:
                self._under_way.remove(request)
                self._cancel(request, now)

    def _cancel(self, request: SentRequest, now: float) -> None:
        request.is_cancelled = True
        self.lost += 1
        if request.timer is not None:
            request.timer.cancel()
        way, took = request.way, now - request.began
        if way.breaker is not None:
            way.breaker.left(tries=request.tries)
        # It would have taken at least as long. Left out, the slowest answers would be missing, and the
        # percentile would sink with each hedge.
        if self._hedge_seconds is not None and took >= self._hedge_seconds:
            way.latencies.add(took)
        if request.task is not None:
            self._ending.append(request.task)
            with suppress(RuntimeError):  # the loop is closed, and the coroutine garbage-collected
                request.task.cancel()

    async def _ended(self) -> None:
        """Wait until the cancelled requests have ended, for LOSER_SECONDS at most.

        Cancelled meanwhile, it waits on: an answer that is there is returned. The engine reads the
        task's own count of cancellations, and decides what becomes of it.
        """
        left = {task for task in self._ending if not task.done()}
        until = self._loop.time() + LOSER_SECONDS
        while left and (rest := until - self._loop.time()) > 0:
            with suppress(asyncio.CancelledError):
                _, left = await asyncio.wait(left, timeout=rest)
        if left:
            LOGGER.warning(
                "run %r: %s: %d cancelled requests have not ended after %g s, and run on: do they catch "
                "CancelledError?",
                self._execution.run.id,
                self._frame.position.id,
                len(left),
                LOSER_SECONDS,
            )
