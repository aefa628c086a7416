"""Rates under wrong clocks, odd answers of providers and damaged documents: no call waits for years."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import msgspec
import pytest

import ninelives as nl
from ninelives.core.governance.rate import REQUESTS, RateState
from ninelives.core.governance.verdicts import Call
from ninelives.governance.background import Background
from ninelives.governance.governor import StoreGovernor
from ninelives.governance.halts import Halts
from ninelives.governance.rates import PREFIX, Rates
from ninelives.runtime.runtime import ProcessOptions
from ninelives.stores.memory.store import MemoryStore
from tests.clocks import SteppingClock
from tests.governance.governed import Watching
from tests.replay.lifetimes import QuickStore, run_async

HOUR_MS, DAY_MS = 3_600_000, 86_400_000


class Busy(Exception):
    """A provider's refusal."""

    status_code = 429

    def __init__(self, seconds: float) -> None:
        super().__init__("busy")
        self.retry_after_seconds = seconds


class Scene:
    """One process that keeps rates, and its clock."""

    def __init__(self, store: MemoryStore, clock: SteppingClock, per_minute: int | None) -> None:
        async def ask() -> None:
            """Ask."""

        step = nl.decision(name="ask", limit=nl.Limit(per_minute=per_minute))(ask)
        self.step = cast("Any", step).__ninelives__
        self.store, self.clock, self.number = store, clock, 0
        self._per_minute = per_minute

    @contextmanager
    def rates(self) -> Iterator[Rates]:
        """Keep the rates; all that is to be written is written at the end."""
        background = Background()
        yield Rates(self.store, {"ask": ("ask", self.step.limit)}, background, lambda: None)
        background.do(lambda: None)
        # `close` skips what waits: let the thread come to it first.
        while not background._work.empty():
            pass
        background.close()

    def call(self) -> Call:
        """Return a call of another run."""
        self.number += 1
        return Call(action="ask", kind="decision", args={}, run=f"run-{self.number}", agent="a", step="s")

    def waits_ms(self, rates: Rates) -> int:
        """Return how long a call has to wait now; 0 if it may go."""
        held = rates.held(self.step, self.call())
        return 0 if held is None else (held.due_ms or 0) - self.clock.now_ms()

    def is_let_through(self, rates: Rates, within_ms: int) -> bool:
        """Return whether a call may go within a time."""
        call, until_ms = self.call(), self.clock.now_ms() + within_ms
        while (held := rates.held(self.step, call)) is not None:
            self.settle(rates)
            now_ms = self.clock.now_ms()
            if now_ms >= until_ms:
                return False
            self.clock.advance(min(max((held.due_ms or 0) - now_ms, 100), until_ms - now_ms))
        return True

    def settle(self, rates: Rates) -> None:
        """Wait until what the process takes has been taken or refused."""
        while rates._by_key["ask"].is_taking:
            pass


@pytest.fixture
def clock() -> SteppingClock:
    return SteppingClock()


@pytest.fixture
def store(clock: SteppingClock) -> MemoryStore:
    return MemoryStore(clock)


@pytest.mark.parametrize("seconds", [1e300, 1e9])
def test_a_provider_cannot_hold_all_runs_for_years(
    store: MemoryStore, clock: SteppingClock, seconds: float
) -> None:
    scene = Scene(store, clock, None)
    with scene.rates() as rates:
        rates.outcome(scene.step, scene.call(), Busy(seconds))
        assert 0 < scene.waits_ms(rates) <= 1.2 * HOUR_MS
    (kept,) = store.read_documents(PREFIX)
    assert msgspec.json.decode(kept.body, type=RateState).until_ms == clock.now_ms() + HOUR_MS


@pytest.mark.parametrize(
    "damage",
    [
        {"until_ms": 2**62, "error": "x"},
        {"at_ms": 2**62, "left": {REQUESTS: 0}},
        {"left": {REQUESTS: -(2**62)}},
    ],
)
def test_a_document_of_the_far_future_holds_nobody_that_long(
    store: MemoryStore, clock: SteppingClock, damage: dict[str, Any]
) -> None:
    given = RateState(**{"at_ms": clock.now_ms(), **damage})
    store.write_document(f"{PREFIX}ask", msgspec.json.encode(given), version=0)
    scene = Scene(store, clock, 600)
    with scene.rates() as rates:
        rates.refresh(store)
        assert scene.is_let_through(rates, 2 * HOUR_MS)


def test_a_clock_that_is_set_back_by_a_day_holds_nobody_for_a_day(
    store: MemoryStore, clock: SteppingClock
) -> None:
    scene = Scene(store, clock, 60)
    with scene.rates() as rates:
        for _ in range(5):
            assert scene.is_let_through(rates, 60_000)
        while rates.held(scene.step, scene.call()) is None:
            pass
        scene.settle(rates)
        assert rates.held(scene.step, scene.call()) is not None
        clock.jump(-DAY_MS)
        assert scene.is_let_through(rates, 60_000)


def test_each_request_of_an_attempt_is_counted_once_and_when_it_ends() -> None:
    counted: list[int] = []

    class Counting(StoreGovernor):
        def outcome(self, step: Any, call: Call, error: Any, tokens: int = 0, requests: int = 1) -> None:
            counted.append(requests)

    async def fails() -> str:
        raise Busy(0.0)

    async def third_time() -> str:
        if len(counted) < 2:
            raise Busy(0.0)
        return "answer"

    step = nl.decision(
        name="ask", alternatives=[third_time], retry=nl.Retry(attempts=3, base_seconds=0), limit=nl.Limit()
    )(fails)

    @nl.agent(name="asks")
    async def asks() -> str:
        return await step()

    async def main() -> str:
        store = QuickStore()
        governor = Counting(store, Halts(store.now_ms), policy=Watching())
        governor.read()
        async with nl.Runtime(store, process=ProcessOptions(governor=governor)) as rt:
            return cast("str", await rt.run(asks, id="run"))

    assert run_async(main) == "answer"
    assert counted == [2, 2, 2]


def test_thousands_of_calls_that_have_no_end_cost_the_others_little(
    store: MemoryStore, clock: SteppingClock
) -> None:
    scene = Scene(store, clock, None)
    with scene.rates() as rates:
        began = time.process_time()
        for _ in range(25_000):
            assert rates.held(scene.step, scene.call()) is None
        assert time.process_time() - began < 5
