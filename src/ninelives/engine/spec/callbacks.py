"""Call users' functions other than bodies: probes, checks, handlers, keys, predicates, upgrades.

Whatever one of them raises is an error of its run only. Without this, `sys.exit()` in a helper, a
KeyboardInterrupt or an unrequested cancellation would end the event loop, and with it every other run.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

from ninelives.core.errors import UsageError
from ninelives.engine.spec.functions import is_async


class Unruly(RuntimeError):
    """A user's function raised something other than an ordinary Exception."""


async def call(what: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call a function, plain (in a thread) or async. Raises only Exceptions, or our own cancellation."""
    if is_async(function):
        found = call_plain(what, function, *args, **kwargs)
    else:
        found = await asyncio.to_thread(call_plain, what, function, *args, **kwargs)
    if not inspect.isawaitable(found):
        return found
    try:
        return await found
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise Unruly(f"{what} ended in CancelledError, and no code cancelled it") from error
    except (KeyboardInterrupt, SystemExit) as error:
        raise Unruly(f"{what} raised {error!r}") from error


def call_plain(what: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call a plain function in this thread. Raises only Exceptions."""
    try:
        return function(*args, **kwargs)
    except StopIteration as error:  # a future cannot hold it, and its awaiter would never wake
        raise Unruly(f"{what} raised {error!r}") from error
    except Exception:
        raise
    except BaseException as error:
        raise Unruly(f"{what} raised {error!r}") from error


def refuse_async(what: str, function: Any) -> None:
    """Reject an async function where the result is needed synchronously. Raises UsageError."""
    if function is not None and is_async(function):
        raise UsageError(
            f"{what} is an async function, whose answer would not be awaited",
            remedy="Give a plain function; what has to be awaited belongs into a step",
        )
