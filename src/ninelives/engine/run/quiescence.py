"""Which runs have callbacks ready on an event loop: delivery waits until its run has none.

However many runs ask in one iteration of the loop, its queue is scanned once for all of them.

asyncio's own loop exposes its queue. On any other loop (uvloop) we note each callback when it is scheduled
and remove it when it runs: callbacks of futures and wake-ups of tasks all go through `call_soon`.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable
from contextvars import Context, copy_context
from functools import partial
from itertools import count
from types import FrameType
from typing import Any, Protocol, cast
from weakref import WeakKeyDictionary

from ninelives.engine.context import run_of

_GLANCE = 4
"""The longest queue that is scanned for a single run; a longer one is scanned once for all runs."""
_noted: WeakKeyDictionary[asyncio.AbstractEventLoop, Noted] = WeakKeyDictionary()


class _Scheduled:
    """A callback that was scheduled on a loop."""

    __slots__ = ("context", "handle", "is_timer")

    def __init__(self, context: Context, is_timer: bool) -> None:
        self.context, self.is_timer = context, is_timer
        self.handle: asyncio.Handle | None = None

    @property
    def is_cancelled(self) -> bool:
        return self.handle is not None and self.handle.cancelled()


class Noted:
    """The callbacks scheduled on a loop, at once or by a timer, that have not run yet."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._scheduled: dict[int, _Scheduled] = {}
        self._numbers = count()
        cast("Any", loop).call_soon = partial(self._soon, loop.call_soon)
        cast("Any", loop).call_soon_threadsafe = partial(self._soon, loop.call_soon_threadsafe)
        cast("Any", loop).call_later = partial(self._timed, loop.call_later)
        cast("Any", loop).call_at = partial(self._timed, loop.call_at)

    def _soon(self, call: Any, callback: Callable[..., object], *args: Any, context: Any = None) -> Any:
        return self._schedule(call, (), callback, args, context)

    def _timed(
        self, call: Any, when: float, callback: Callable[..., object], *args: Any, context: Any = None
    ) -> Any:
        return self._schedule(call, (when,), callback, args, context)

    def _schedule(
        self, call: Any, when: tuple[float, ...], callback: Any, args: tuple[Any, ...], context: Any
    ) -> Any:
        scheduled = _Scheduled(context if context is not None else copy_context(), is_timer=bool(when))
        number = next(self._numbers)
        self._scheduled[number] = scheduled  # before it can run: this may be another thread than the loop's
        scheduled.handle = handle = call(*when, self._run, number, callback, args, context=scheduled.context)
        return handle

    def _run(self, number: int, callback: Callable[..., object], args: tuple[Any, ...]) -> None:
        self._scheduled.pop(number, None)
        callback(*args)

    def contexts(self, *, timers: bool) -> list[Context]:
        """Return the contexts of the ready callbacks or, with `timers`, of the timers."""
        noted = list(self._scheduled.items())
        for number, scheduled in noted:
            if scheduled.is_cancelled:
                self._scheduled.pop(number, None)
        return [one.context for _, one in noted if one.is_timer is timers and not one.is_cancelled]


def watch(loop: asyncio.AbstractEventLoop) -> None:
    """Start noting callbacks on a loop that does not expose its queue."""
    if not hasattr(loop, "_ready"):
        _noted[loop] = Noted(loop)


def unwatch(loop: asyncio.AbstractEventLoop) -> None:
    """Restore the loop's own methods."""
    if _noted.pop(loop, None) is not None:
        for name in ("call_soon", "call_soon_threadsafe", "call_later", "call_at"):
            delattr(loop, name)


class IdleQuestion(Protocol):
    """A caller that needs to know which runs have callbacks ready (`Delivery`)."""

    def check(self, busy: frozenset[object]) -> None:
        """Continue, given the executions that have callbacks ready."""


class IdleRound:
    """Batches the questions that come in one iteration of an event loop."""

    def __init__(self) -> None:
        self._asking: deque[IdleQuestion] = deque()
        # It belongs to no run. There is one per loop, because two threads cannot enter the same context.
        self._context = Context()

    def ask(self, loop: asyncio.AbstractEventLoop, asking: IdleQuestion) -> None:
        """Call `asking.check` in the next iteration, with the runs that are busy then."""
        self._asking.append(asking)
        if len(self._asking) == 1 and not loop.is_closed():  # else abandoned code is being garbage-collected
            loop.call_soon(self._check, loop, context=self._context)

    def _check(self, loop: asyncio.AbstractEventLoop) -> None:
        # Delivering to one run cannot make another run busy, so the snapshot stays valid for all of them.
        busy, asking = busy_runs(loop), self._asking
        self._asking = deque()
        try:
            while asking:
                asking.popleft().check(busy)
        finally:
            for one in asking:  # not checked yet, because an earlier check raised
                self.ask(loop, one)


_rounds: WeakKeyDictionary[asyncio.AbstractEventLoop, IdleRound] = WeakKeyDictionary()


def round_of(loop: asyncio.AbstractEventLoop) -> IdleRound:
    """Return the batch of questions of a loop."""
    known = _rounds.get(loop)
    if known is None:
        known = _rounds[loop] = IdleRound()
    return known


def busy_runs(loop: asyncio.AbstractEventLoop) -> frozenset[object]:
    """Return the executions whose agent code has a callback ready; callbacks of bodies do not count."""
    noted = _noted.get(loop)
    if noted is not None:
        return frozenset(map(run_of, noted.contexts(timers=False)))
    return frozenset(
        run_of(handle._context)  # noqa: SLF001
        for handle in tuple(cast("Any", loop)._ready)  # noqa: SLF001 (other threads add to it meanwhile)
        if not handle._cancelled  # noqa: SLF001
    )


def is_plainly_idle(loop: asyncio.AbstractEventLoop, run: object) -> bool:
    """Return True if a short queue shows that an execution has nothing ready; False if that is unknown."""
    ready = getattr(loop, "_ready", None)
    if ready is None or len(ready) > _GLANCE:
        return False
    return all(run_of(handle._context) is not run for handle in tuple(ready))  # noqa: SLF001


def has_foreign(loop: asyncio.AbstractEventLoop, is_ours: Callable[[Context], bool]) -> bool:
    """Return whether code in one of our contexts waits for a timer or socket; uvloop hides its sockets."""
    noted = _noted.get(loop)
    if noted is not None:
        return any(map(is_ours, noted.contexts(timers=True)))
    timers = getattr(loop, "_scheduled", ())
    if any(not timer._cancelled and is_ours(timer._context) for timer in timers):  # noqa: SLF001
        return True
    selector = getattr(loop, "_selector", None)
    watched = selector.get_map().values() if selector is not None else ()
    handles = (handle for key in watched if isinstance(key.data, tuple) for handle in key.data)
    return any(handle is not None and is_ours(handle._context) for handle in handles)  # noqa: SLF001


# Timers that replay cannot repeat ----------------------------------------------------------------

_TIMERS = {"_on_timeout": "asyncio.timeout", "_cancel_and_wait": "asyncio.wait_for"}


def timer_of(caller: FrameType) -> str | None:
    """Return the name of the timer whose frame calls `cancel`, if replay cannot repeat it."""
    code = caller.f_code
    if code.co_name in _TIMERS and "asyncio" in code.co_filename:
        return _TIMERS[code.co_name]
    if code.co_name == "_deliver_cancellation" and "anyio" in code.co_filename:
        deadline = getattr(caller.f_locals.get("self"), "deadline", math.inf)
        return "a time limit of anyio's" if deadline <= asyncio.get_running_loop().time() else None
    return None
