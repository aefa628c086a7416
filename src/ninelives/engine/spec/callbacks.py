"""Functions of the user's that we call beside bodies: probes, checks, handlers, keys, predicates, upgrades.

Whatever one of them raises is an error of its run. `sys.exit()` in a helper, a KeyboardInterrupt or a
cancellation that nobody asked for would else end the event loop, and with it every other run.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

from ninelives.core.errors import UsageError
from ninelives.engine.spec.functions import is_async


class Unruly(RuntimeError):
    """What a function of the user's raised that is no ordinary error."""


async def call(what: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call a function, plain (in a thread) or async. Raises Exceptions only, unless we are cancelled."""
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
        raise Unruly(f"{what} ended in CancelledError, and nobody had cancelled it") from error
    except (KeyboardInterrupt, SystemExit) as error:
        raise Unruly(f"{what} raised {error!r}") from error


def call_plain(what: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call a plain function here. Raises Exceptions only."""
    try:
        return function(*args, **kwargs)
    except StopIteration as error:  # a future cannot hold it, and its awaiter would wait in vain
        raise Unruly(f"{what} raised {error!r}") from error
    except Exception:
        raise
    except BaseException as error:
        raise Unruly(f"{what} raised {error!r}") from error


def refuse_async(what: str, function: Any) -> None:
    """Refuse an async function where its answer is needed at once. Raises UsageError."""
    if function is not None and is_async(function):
        raise UsageError(
            f"{what} is an async function, whose answer would not be awaited",
            remedy="Give a plain function; what has to be awaited belongs into a step",
        )
