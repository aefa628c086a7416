"""Signals by their public face: `run.signal` and `nl.receive`."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest

import ninelives as nl
from tests.replay.lifetimes import QuickStore, run_async


@dataclass(frozen=True)
class Paid:
    order: str
    cents: int


@nl.agent(name="till")
async def till() -> Paid:
    return await nl.receive("paid", type=Paid)


@nl.agent(name="anything")
async def anything() -> Any:
    return await nl.receive("x")


def test_a_typed_value_comes_as_it_was_sent() -> None:
    async def main() -> None:
        async with nl.Runtime(QuickStore()) as rt:
            run = await rt.start(till, id="t")
            await run.signal("paid", Paid("o1", 5))
            assert await rt.run(till, id="t") == Paid("o1", 5)
            plain = await rt.start(till, id="p")
            await plain.signal("paid", {"order": "o2", "cents": 7})
            assert await rt.run(till, id="p") == Paid("o2", 7)

    run_async(main)


@pytest.mark.parametrize(
    "value", [None, 1, "x", [1, {"a": (2, b"3")}], {1, 2}, datetime(2026, 1, 2, tzinfo=UTC)]
)
def test_plain_values_come_back_equal(value: Any) -> None:
    async def main() -> None:
        async with nl.Runtime(QuickStore()) as rt:
            run = await rt.start(anything, id="a")
            await run.signal("x", value)
            found = await rt.run(anything, id="a")
            assert (found, type(found)) == (value, type(value))

    run_async(main)


def test_an_id_makes_sending_idempotent() -> None:
    async def main() -> None:
        store = QuickStore()
        async with nl.Runtime(store) as rt:
            run = await rt.start(anything, id="a")
            for _ in range(2):
                await run.signal("x", 1, id="one")
            assert len(store.load_journal("a").signals) == 1
            with pytest.raises(nl.IdConflict):
                await run.signal("x", 2, id="one")

    run_async(main)


def test_a_finished_run_takes_no_signal_and_says_so() -> None:
    async def main() -> None:
        async with nl.Runtime(QuickStore()) as rt:
            run = await rt.start(anything, id="a")
            await run.signal("x", 1)
            await rt.run(anything, id="a")
            with pytest.raises(nl.RunFinished, match=r"completed.*'a'"):
                await run.signal("x", 2)

    run_async(main)


def test_what_cannot_be_kept_is_refused_before_it_is_sent() -> None:
    async def main() -> None:
        store = QuickStore()
        async with nl.Runtime(store) as rt:
            run = await rt.start(anything, id="a")
            with pytest.raises(nl.NotSerializable, match="now"):
                await run.signal("x", {"now": object()})
            with pytest.raises(nl.UsageError):
                await run.signal("x", object())
            with pytest.raises(nl.UsageError):
                await run.signal("", 1)
            assert store.load_journal("a").signals == ()

    run_async(main)


def test_plain_code_sends_signals_too() -> None:
    with nl.Runtime(QuickStore()).sync() as rt:
        run = rt.start(anything, id="a")
        run.signal("x", 5)
        assert rt.run(anything, id="a") == 5
