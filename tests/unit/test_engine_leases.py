"""No body begins without a lease: not in a thread, and not in a process that stood still just before."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

import ninelives as nl
from ninelives.core.model.counter import Counter
from ninelives.core.model.session import Session
from ninelives.engine.hooks import BodyBegan, Observer
from ninelives.engine.lease import Lease
from ninelives.engine.step import other_loops, threads
from ninelives.runtime import ProcessOptions
from ninelives.stores.clock import SystemClock
from tests.contract.makers import new_session
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


class Overtaken(Lease):
    """A lease that is stopped just when its thread is about to extend it."""

    _until_ms = 0.0
    is_extended: threading.Event | None = None

    @property
    def until_ms(self) -> float:
        """Until when bodies may begin."""
        return self._until_ms

    @until_ms.setter
    def until_ms(self, value: float) -> None:
        if self.is_extended is not None and not self.is_extended.is_set() and value:
            stopping = threading.Thread(target=self.stop)
            stopping.start()
            stopping.join(0.2)  # it may have to wait for us
            self._until_ms = value
            self.is_extended.set()
        else:
            self._until_ms = value


def test_no_body_begins_after_its_lease_was_stopped_in_the_midst_of_a_renewal() -> None:
    store, clock = QuickStore(), SystemClock()
    store.register_session(new_session(lease_ms=30))

    async def main() -> float:
        lease = Overtaken(store, clock, "s1", 30, sent_ms=clock.boot_ms(), lost=lambda _: None)
        lease.is_extended = threading.Event()
        assert await asyncio.to_thread(lease.is_extended.wait, 20)
        await asyncio.to_thread(lease._thread.join)
        return lease.until_ms

    assert run_async(main) == 0


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

    def renew_session(self, session: str, *, counts: Sequence[Counter] = ()) -> Session:
        """Renew it."""
        renewed = super().renew_session(session, counts=counts)
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


class Delayed(SystemClock):
    """Time passes, far more than a lease, before the loop that is to run a body comes to it."""

    passed_ms = 0

    def boot_ms(self) -> int:
        """Return milliseconds since boot."""
        if sys._getframe(1).f_code.co_filename == other_loops.__file__:
            self.passed_ms = 3_600_000
        return super().boot_ms() + self.passed_ms


class Admissions(Observer):
    """Notes how long before each body the lease was checked."""

    def __init__(self) -> None:
        self.ago_ms: list[int] = []

    def body_began(self, event: BodyBegan) -> None:
        """Note it."""
        self.ago_ms.append(event.admitted_ms_ago)


def test_a_body_on_another_loop_counts_as_admitted_when_it_has_its_lease_there() -> None:
    clock, seen = Delayed(), Admissions()

    @nl.action(name="leases.pay")
    async def pay() -> int:
        return 7

    @nl.agent(name="leases.shop")
    def shop() -> int:
        return asyncio.run(pay())

    async def main() -> int:
        process = ProcessOptions(clock=clock, observers=(seen,))
        async with nl.Runtime(QuickStore(), lease_seconds=0.6, process=process) as rt:
            return cast("int", await rt.run(shop))

    assert run_async(main) == 7
    assert len(seen.ago_ms) == 1
    assert seen.ago_ms[0] < 60_000
