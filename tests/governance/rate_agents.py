"""A worker process of the rate tests: `python -m tests.governance.rate_agents STORE LEDGER CALLS`.

Its decisions ask a provider, the ledger: each request is a line with its time. While `LEDGER.busy` exists,
it refuses with a Retry-After of five seconds.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time

import ninelives as nl


class Busy(Exception):
    """The provider has too much to do."""

    status_code = 429
    retry_after_seconds = 5.0


@nl.decision(limit=nl.Limit(per_minute=600, key="provider"))
async def ask(number: int) -> int:
    """Ask the provider."""
    is_busy = os.path.exists(f"{sys.argv[2]}.busy")  # noqa: ASYNC240, PTH110 (short, in a test)
    line = f"{time.monotonic_ns()} {os.getpid()} {'429' if is_busy else '200'}\n"
    fd = os.open(sys.argv[2], os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    os.write(fd, line.encode())
    os.close(fd)
    if is_busy:
        raise Busy
    return number


@nl.agent
async def user() -> None:
    """Ask as often as the command line says."""
    for number in range(int(sys.argv[3])):
        await ask(number)


async def main() -> None:
    """Work until killed."""
    async with nl.Runtime(sys.argv[1], lease_seconds=30) as rt:
        await rt.work(concurrency=15)


if __name__ == "__main__":
    asyncio.run(main())
