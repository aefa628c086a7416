"""What is ready to run on an event loop, of which run: delivery waits until nothing of its run is.

However many runs ask in one round of the loop, what is ready is looked through once for all of them.

Python's own loop shows its queue. Of any other (uvloop), whatever is to be called is noted on its way in and
struck off when it runs: callbacks of futures and wake-ups of tasks all go through `call_soon`.
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
"""How many callbacks are looked through for one run alone; those of more are looked through for all."""
_noted: WeakKeyDictionary[asyncio.AbstractEventLoop, Noted] = WeakKeyDictionary()


class _Asked:
    """Something that a loop has been asked to call."""

    __slots__ = ("context", "handle", "is_timer")

    def __init__(self, context: Context, is_timer: bool) -> None:
        self.context, self.is_timer = context, is_timer
        self.handle: asyncio.Handle | None = None

    @property
    def is_cancelled(self) -> bool:
        return self.handle is not None and self.handle.cancelled()


class Noted:
    """What a loop has been asked to call, soon or at a time, and has not called yet."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._asked: dict[int, _Asked] = {}
        self._numbers = count()
        cast("Any", loop).call_soon = partial(self._soon, loop.call_soon)
        cast("Any", loop).call_soon_threadsafe = partial(self._soon, loop.call_soon_threadsafe)
        cast("Any", loop).call_later = partial(self._timed, loop.call_later)
        cast("Any", loop).call_at = partial(self._timed, loop.call_at)

    def _soon(self, call: Any, callback: Callable[..., object], *args: Any, context: Any = None) -> Any:
        return self._ask(call, (), callback, args, context)

    def _timed(
        self, call: Any, when: float, callback: Callable[..., object], *args: Any, context: Any = None
    ) -> Any:
        return self._ask(call, (when,), callback, args, context)

    def _ask(
        self, call: Any, when: tuple[float, ...], callback: Any, args: tuple[Any, ...], context: Any
    ) -> Any:
        asked = _Asked(context if context is not None else copy_context(), is_timer=bool(when))
        number = next(self._numbers)
        self._asked[number] = asked  # before it can run: another thread may be the one that asks
        asked.handle = handle = call(*when, self._run, number, callback, args, context=asked.context)
        return handle

    def _run(self, number: int, callback: Callable[..., object], args: tuple[Any, ...]) -> None:
        self._asked.pop(number, None)
        callback(*args)

    def contexts(self, *, timers: bool) -> list[Context]:
        """Return the contexts of what is ready, or of what waits for its time."""
        noted = list(self._asked.items())
        for number, asked in noted:
            if asked.is_cancelled:
                self._asked.pop(number, None)
        return [one.context for _, one in noted if one.is_timer is timers and not one.is_cancelled]


def watch(loop: asyncio.AbstractEventLoop) -> None:
    """Note what is called, on a loop that does not show it."""
    if not hasattr(loop, "_ready"):
        _noted[loop] = Noted(loop)


def unwatch(loop: asyncio.AbstractEventLoop) -> None:
    """Put the loop back as it was."""
    if _noted.pop(loop, None) is not None:
        for name in ("call_soon", "call_soon_threadsafe", "call_later", "call_at"):
            delattr(loop, name)


class IdleQuestion(Protocol):
    """Who wants to know which runs have something ready."""

    def check(self, busy: frozenset[object]) -> None:
        """Go on, knowing the executions that have something ready."""


class IdleRound:
    """Those who ask in one round of an event loop."""

    def __init__(self) -> None:
        self._asking: deque[IdleQuestion] = deque()
        self._context = Context()  # of no run; and of one loop, for no two threads may be in one context

    def ask(self, loop: asyncio.AbstractEventLoop, asking: IdleQuestion) -> None:
        """Tell somebody soon what is ready then."""
        self._asking.append(asking)
        if len(self._asking) == 1 and not loop.is_closed():  # else code that was left behind is thrown away
            loop.call_soon(self._look, loop, context=self._context)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        # Who is told only makes something of his own run ready: what we have seen stays true for the others.
        busy, asking = busy_runs(loop), self._asking
        self._asking = deque()
        try:
            while asking:
                asking.popleft().check(busy)
        finally:
            for one in asking:  # not told yet: somebody before them has failed
                self.ask(loop, one)


_rounds: WeakKeyDictionary[asyncio.AbstractEventLoop, IdleRound] = WeakKeyDictionary()


def round_of(loop: asyncio.AbstractEventLoop) -> IdleRound:
    """Return where to ask on a loop."""
    known = _rounds.get(loop)
    if known is None:
        known = _rounds[loop] = IdleRound()
    return known


def busy_runs(loop: asyncio.AbstractEventLoop) -> frozenset[object]:
    """Return the executions of which some code is ready, outside of any body."""
    noted = _noted.get(loop)
    if noted is not None:
        return frozenset(map(run_of, noted.contexts(timers=False)))
    return frozenset(
        run_of(handle._context)  # noqa: SLF001
        for handle in tuple(cast("Any", loop)._ready)  # noqa: SLF001 (other threads add to it meanwhile)
        if not handle._cancelled  # noqa: SLF001
    )


def is_plainly_idle(loop: asyncio.AbstractEventLoop, run: object) -> bool:
    """Tell that nothing of an execution is ready, where that is seen at a glance; else it is not said."""
    ready = getattr(loop, "_ready", None)
    if ready is None or len(ready) > _GLANCE:
        return False
    return all(run_of(handle._context) is not run for handle in tuple(ready))  # noqa: SLF001


def has_foreign(loop: asyncio.AbstractEventLoop, is_ours: Callable[[Context], bool]) -> bool:
    """Tell whether code in one of our contexts waits for a timer or a socket; uvloop hides its sockets."""
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
    """Return the name of the timer that cancels, when it is one that replay cannot repeat."""
    code = caller.f_code
    if code.co_name in _TIMERS and "asyncio" in code.co_filename:
        return _TIMERS[code.co_name]
    if code.co_name == "_deliver_cancellation" and "anyio" in code.co_filename:
        deadline = getattr(caller.f_locals.get("self"), "deadline", math.inf)
        return "a time limit of anyio's" if deadline <= asyncio.get_running_loop().time() else None
    return None
