"""What is ready to run on an event loop, as far as one run is concerned: delivery waits until nothing is.

Python's own loop shows its queue. Of any other (uvloop), whatever is to be called is noted on its way in and
struck off when it runs: callbacks of futures and wake-ups of tasks all go through `call_soon`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context, copy_context
from functools import partial
from itertools import count
from typing import Any, cast
from weakref import WeakKeyDictionary

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


def is_at_rest(loop: asyncio.AbstractEventLoop, is_ours: Callable[[Context], bool]) -> bool:
    """Tell whether nothing is ready that runs in one of our contexts."""
    noted = _noted.get(loop)
    if noted is not None:
        return not any(map(is_ours, noted.contexts(timers=False)))
    return not any(
        not handle._cancelled and is_ours(handle._context)  # noqa: SLF001
        for handle in tuple(cast("Any", loop)._ready)  # noqa: SLF001 (other threads add to it meanwhile)
    )


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
