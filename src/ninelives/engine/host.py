"""What a runtime sets on its event loop: tasks become branches, lent threads are counted.

Several runtimes may share a loop; the first to come sets it up and the last to go puts it back.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from functools import partial
from typing import Any, cast
from weakref import WeakKeyDictionary

from ninelives.engine.context import make_task, runtime_lives
from ninelives.engine.threads import lend

_before: WeakKeyDictionary[asyncio.AbstractEventLoop, Any] = WeakKeyDictionary()
_guests: Counter[int] = Counter()


def enter(loop: asyncio.AbstractEventLoop) -> None:
    """Set the loop up for runs."""
    runtime_lives(+1)
    _guests[id(loop)] += 1
    if _guests[id(loop)] > 1:
        return
    _before[loop] = loop.get_task_factory()
    loop.set_task_factory(cast("Any", make_task))
    with suppress(AttributeError):  # a loop that is not Python's own keeps its threads to itself
        cast("Any", loop).run_in_executor = partial(lend, loop.run_in_executor)


def leave(loop: asyncio.AbstractEventLoop) -> None:
    """Put the loop back when the last runtime leaves it."""
    runtime_lives(-1)
    _guests[id(loop)] -= 1
    if _guests[id(loop)]:
        return
    del _guests[id(loop)]
    loop.set_task_factory(_before.pop(loop, None))
    with suppress(AttributeError):
        del cast("Any", loop).run_in_executor
