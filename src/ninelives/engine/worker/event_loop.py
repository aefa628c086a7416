"""The event loop of a worker: how it is patched for runs, and how code on it calls the store.

Patched: tasks become branches, executor threads are counted, waits recorded. Several runtimes may share a
loop; the first one patches it and the last one restores it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, Concatenate, ParamSpec, TypeVar, cast
from weakref import WeakKeyDictionary

from ninelives.engine.agent import time_limits
from ninelives.engine.context import runtime_lives
from ninelives.engine.run import quiescence
from ninelives.engine.run.tasks import make_task
from ninelives.engine.step.threads import lend
from ninelives.store import Store

P = ParamSpec("P")
T = TypeVar("T")


class _Guests:
    """How many runtimes use a loop, and the task factory that it had before."""

    def __init__(self, factory: Any) -> None:
        self.factory, self.count = factory, 0


_guests: WeakKeyDictionary[asyncio.AbstractEventLoop, _Guests] = WeakKeyDictionary()


def enter(loop: asyncio.AbstractEventLoop) -> None:
    """Patch the loop for runs, if this is its first runtime."""
    runtime_lives(+1)
    guests = _guests.setdefault(loop, _Guests(loop.get_task_factory()))
    guests.count += 1
    if guests.count > 1:
        return
    loop.set_task_factory(cast("Any", make_task))
    cast("Any", loop).run_in_executor = partial(lend, loop.run_in_executor)
    quiescence.watch(loop)
    # After `watch`, which may replace `call_later` too: ours has to be the outer one.
    cast("Any", loop).call_later = partial(time_limits.call_later, loop.call_later)


def leave(loop: asyncio.AbstractEventLoop) -> None:
    """Restore the loop when its last runtime leaves."""
    runtime_lives(-1)
    guests = _guests[loop]
    guests.count -= 1
    if guests.count:
        return
    del _guests[loop]
    loop.set_task_factory(guests.factory)
    del cast("Any", loop).run_in_executor
    quiescence.unwatch(loop)
    # May be gone: on a loop that hides its queue, `unwatch` has removed it.
    vars(loop).pop("call_later", None)


class StoreCaller:
    """Calls the store for a worker's code on an event loop.

    The rule: an event loop never waits for a store; each call is made in a thread. The exception is a loop
    that nothing else uses, with a store on the same machine (`is_inline`): a thread costs more than the call.
    """

    def __init__(self, store: Store, *, is_inline: bool = False) -> None:
        self._store, self._is_inline = store, is_inline

    async def call(self, work: Callable[Concatenate[Store, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return `work(store, ...)`. When cancelled, wait for its end first: what it wrote is then known."""
        if self._is_inline:
            return work(self._store, *args, **kwargs)
        loop = asyncio.get_running_loop()
        called = loop.run_in_executor(None, partial(work, self._store, *args, **kwargs))
        try:
            return await asyncio.shield(called)
        except asyncio.CancelledError:
            await asyncio.wait((called,))
            raise
