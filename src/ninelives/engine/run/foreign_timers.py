"""Timers that cancel a run's code and that replay cannot repeat: by the function that cancels."""

from __future__ import annotations

import asyncio
import math
from types import FrameType

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
