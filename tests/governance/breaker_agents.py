"""A worker process of the breaker tests: `python -m tests.governance.breaker_agents STORE LEDGER`.

Its agents call a tool that fails as long as the file `LEDGER.sick` is there.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time

import ninelives as nl

FAILURES = 5


RETRY = nl.Retry(attempts=1_000, backoff="constant", base_seconds=0.05, on=(OSError,))


@nl.action(breaker=nl.Breaker(failures=FAILURES, within="1m", open="2s"), retry=RETRY)
async def call_tool(run: str) -> None:
    """Call the tool."""
    is_sick = os.path.exists(f"{sys.argv[2]}.sick")  # noqa: ASYNC240, PTH110 (short, in a test)
    line = f"{'failed' if is_sick else 'done'} {run} {os.getpid()} {time.time_ns()}\n"
    fd = os.open(sys.argv[2], os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    os.write(fd, line.encode())
    os.close(fd)
    if is_sick:
        raise OSError("the tool is away")


@nl.agent
async def user() -> None:
    """Use the tool; its attempts are repeated until it works."""
    await call_tool(nl.info().run)


@nl.agent
async def idler() -> int:
    """Use no tool."""
    return 1


async def main() -> None:
    """Work until killed."""
    async with nl.Runtime(sys.argv[1], lease_seconds=30) as rt:
        await rt.work(concurrency=30)


if __name__ == "__main__":
    asyncio.run(main())
