"""Threads that wait for a lease before they begin a body."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from ninelives.engine import threads


def test_a_body_that_was_withdrawn_does_not_wait_for_a_lease() -> None:
    async def main() -> bool:
        outcome: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        work = threads.Work(lambda: None, outcome)
        execution = SimpleNamespace(
            clock=SimpleNamespace(boot_ms=lambda: 1), lease=SimpleNamespace(until_ms=0), sealed=None
        )
        work.frame = cast("Any", SimpleNamespace(place=SimpleNamespace(execution=execution)))
        waiting = asyncio.create_task(asyncio.to_thread(threads._has_lease, work))
        outcome.cancel()
        async with asyncio.timeout(30):
            return await waiting

    assert asyncio.run(main()) is False
