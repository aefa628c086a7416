"""Patch an event loop for runs: tasks become branches, executor threads are counted, waits recorded.

Several runtimes may share a loop; the first one patches it and the last one restores it.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any, cast
from weakref import WeakKeyDictionary

from ninelives.engine.agent import time_limits
from ninelives.engine.context import runtime_lives
from ninelives.engine.run import quiescence
from ninelives.engine.run.tasks import make_task
from ninelives.engine.step.threads import lend


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
    vars(loop).pop("call_later", None)
