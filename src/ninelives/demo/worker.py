"""The process that the demo kills: a worker for the support agent, on the store in `NINELIVES_STORE`.

It prints `ready` once Python has started and all imports are done, so that recovery time can be reported
without them.
"""

from __future__ import annotations

import asyncio
import os
import sys
from importlib import import_module

import ninelives as nl
from ninelives.demo import agent as agent  # noqa: PLC0414 (declares the agent)
from ninelives.demo.children import end_with_parent
from ninelives.stores.url import backend_of


async def work() -> None:
    """Work until killed."""
    async with nl.Runtime() as runtime:
        await runtime.work()


if __name__ == "__main__":
    end_with_parent()
    for lazy in ("ninelives.runtime", backend_of(os.environ["NINELIVES_STORE"])):
        import_module(lazy)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    asyncio.run(work())
