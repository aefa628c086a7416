"""Let an async body continue after each await only while the lease holds.

A process that was stopped, or a machine that was suspended, resumes in the middle of a body; by then another
worker may have settled the start. Nothing can stop a body between two awaits; at each await we can. See
docs/decisions/0017.
"""

from __future__ import annotations

import types
from collections.abc import Awaitable, Callable, Generator
from typing import Any

from ninelives.engine.run.execution import Execution


async def _awaited(body: Callable[[], Awaitable[Any]]) -> Any:
    return await body()


@types.coroutine
def guarded(execution: Execution, body: Callable[[], Awaitable[Any]]) -> Generator[Any, Any, Any]:
    """Await a body; after each of its awaits it continues only while the lease holds."""
    inner = _awaited(body)
    value, error = None, None
    while True:
        try:
            awaits = inner.send(value) if error is None else inner.throw(error)
        except StopIteration as end:
            return end.value
        value, error = None, None
        try:
            value = yield awaits
            if execution.clock.boot_ms() >= execution.lease.until_ms:
                yield from execution.require_lease().__await__()
        except GeneratorExit:
            inner.close()
            raise
        except BaseException as caught:  # noqa: BLE001 (handed on as it is)
            error = caught
