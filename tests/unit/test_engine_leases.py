"""No body begins without a lease: not in a thread, and not in a process that stood still just before."""

from __future__ import annotations

import asyncio
import sys
from types import SimpleNamespace
from typing import Any, cast

import pytest

import ninelives as nl
from ninelives.core.model.session import Session
from ninelives.engine.step import threads
from ninelives.runtime import ProcessOptions
from ninelives.stores.clock import SystemClock
from tests.replay.lifetimes import QuickStore, run_async


def test_a_body_that_was_withdrawn_does_not_wait_for_a_lease() -> None:
    async def main() -> bool:
        outcome: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        work = threads.Work(lambda: None, outcome)
        execution = SimpleNamespace(
            clock=SimpleNamespace(boot_ms=lambda: 1), lease=SimpleNamespace(until_ms=0), sealed=None
        )
        work.frame = cast("Any", SimpleNamespace(position=SimpleNamespace(execution=execution)))
        waiting = asyncio.create_task(asyncio.to_thread(threads._has_lease, work))
        outcome.cancel()
        async with asyncio.timeout(30):
            return await waiting

    assert asyncio.run(main()) is False


class StandingStill(SystemClock):
    """Time passes, far more than a lease, between the last look before a body is begun and its beginning."""

    def __init__(self) -> None:
        super().__init__()
        self.passed_ms = 0

    def boot_ms(self) -> int:
        """Return milliseconds since boot."""
        if sys._getframe(1).f_code.co_name == "_run" and not self.passed_ms:
            asyncio.get_running_loop().call_soon(self.stand_still)
        return super().boot_ms() + self.passed_ms

    def stand_still(self) -> None:
        """Let an hour pass."""
        self.passed_ms = 3_600_000


class CountingStore(QuickStore):
    """Counts how often a session is renewed after the hour."""

    def __init__(self, clock: StandingStill) -> None:
        super().__init__()
        self.clock, self.renewals = clock, 0

    def renew_session(self, session: str) -> Session:
        """Renew it."""
        renewed = super().renew_session(session)
        self.renewals += self.clock.passed_ms > 0
        return renewed


def test_a_body_that_was_to_begin_when_its_process_stood_still_waits_for_the_lease() -> None:
    clock = StandingStill()
    store = CountingStore(clock)
    seen = []

    @nl.action(name="leases.pay", resumable=False)
    async def pay() -> int:
        seen.append((clock.passed_ms, store.renewals > 0))
        return 7

    @nl.agent(name="leases.shop")
    async def shop() -> int:
        return await pay()

    async def main() -> int:
        runtime = nl.Runtime(store, lease_seconds=0.6, process=ProcessOptions(clock=clock))
        async with runtime:
            return cast("int", await runtime.run(shop))

    assert run_async(main) == 7
    assert seen == [(3_600_000, True)]


def test_a_body_whose_process_stood_still_in_the_middle_goes_on_only_with_the_lease() -> None:
    clock = StandingStill()
    store = CountingStore(clock)
    seen = []

    @nl.action(name="leases.pay", resumable=False)
    async def pay() -> int:
        clock.stand_still()
        await asyncio.sleep(0)
        seen.append(store.renewals > 0)
        with pytest.raises(ZeroDivisionError):
            await asyncio.gather(divided())  # what it awaits still raises in it
        return 7

    async def divided() -> float:
        return 1 / 0

    @nl.agent(name="leases.shop")
    async def shop() -> int:
        return await pay()

    async def main() -> int:
        runtime = nl.Runtime(store, lease_seconds=0.6, process=ProcessOptions(clock=clock))
        async with runtime:
            return cast("int", await runtime.run(shop))

    clock.passed_ms = 1  # nothing happens before the body begins
    assert run_async(main) == 7
    assert seen == [True]
