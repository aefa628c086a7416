"""Durable waits: parking and waking, timers and signals, in memory and across lives."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest

import ninelives as nl
from ninelives.core.model.run import Kind, State
from ninelives.store import Store
from tests.replay.lifetimes import QuickStore, run_async


@nl.action(name="did")
async def did(what: str) -> str:
    return what


async def until(condition: Callable[[], Any]) -> None:
    """Wait for a condition."""
    while not condition():  # noqa: ASYNC110 (what happens in the store sets no event)
        await asyncio.sleep(0.002)


def state(store: Store, run: str) -> State:
    row = store.read_run(run)
    assert row is not None
    return row.state


def kinds(store: Store, run: str) -> list[str]:
    return [record.kind.value for record in store.load_journal(run, since=0).records]


def signal(store: Store, run: str, name: str, body: bytes = b"null") -> None:
    store.send_signal(run, name, body)


def test_a_long_sleep_parks_the_run_and_it_wakes_at_its_time() -> None:
    @nl.agent
    async def sleeper() -> str:
        await did("before")
        await nl.sleep(1.5)
        return await did("after")

    async def main() -> None:
        store = QuickStore()
        async with nl.Runtime(store) as rt:
            run = await rt.start(sleeper, id="s")
            working = asyncio.create_task(rt.work())
            await until(lambda: state(store, "s") is State.CHECKPOINTED)
            row = store.read_run("s")
            assert row is not None
            assert row.waits.startswith("until ")
            assert row.due_ms is not None
            assert await run.result() == "after"
            ended = store.read_run("s")
            assert ended is not None
            assert ended.changed_ms >= row.due_ms
            assert ended.epoch == 2
            working.cancel()
            with suppress(asyncio.CancelledError):
                await working
        assert [kind for kind in kinds(store, "s") if kind != "intent"] == [
            "created",
            "result",
            "result",
            "result",
            "end",
        ]

    run_async(main)


def test_a_short_sleep_stays_in_memory() -> None:
    @nl.agent
    async def napper() -> int:
        await nl.sleep(0.01)
        await nl.sleep(0)
        return 1

    async def main() -> None:
        store = QuickStore()
        async with nl.Runtime(store) as rt:
            assert await rt.run(napper, id="n") == 1
        row = store.read_run("n")
        assert row is not None
        assert row.epoch == 1

    run_async(main)


def test_signals_sent_before_the_start_are_received_in_order() -> None:
    @nl.agent
    async def listener() -> list[int]:
        return [await nl.receive("n", type=int) for _ in range(3)]

    async def main() -> None:
        store = QuickStore()
        async with nl.Runtime(store) as rt:
            run = await rt.start(listener, id="l")
            for number in (b"1", b"2", b"3"):
                signal(store, "l", "n", number)
            signal(store, "l", "other", b"9")
            await rt.work(until_idle=True)
            assert await run.result() == [1, 2, 3]
        assert [one.name for one in store.load_journal("l").signals] == ["other"]

    run_async(main)


def test_a_parked_receiver_is_woken_by_its_signal() -> None:
    @nl.agent
    async def waiter() -> str:
        return await nl.receive("go", type=str)

    async def main() -> None:
        store = QuickStore()
        async with nl.Runtime(store) as rt:
            running = asyncio.create_task(rt.run(waiter, id="w"))
            await until(lambda: store.read_run("w") and state(store, "w") is State.CHECKPOINTED)
            row = store.read_run("w")
            assert row is not None
            assert (row.waits, row.due_ms) == ("for the signal 'go'", None)
            signal(store, "w", "go", b'"now"')
            assert await running == "now"

    run_async(main)


def test_a_branch_that_waits_hears_of_signals_while_another_works() -> None:
    working, heard = asyncio.Event(), asyncio.Event()

    @nl.action
    async def long_body() -> str:
        working.set()
        await heard.wait()
        return "worked"

    @nl.action
    async def note(value: int) -> int:
        heard.set()
        return value

    @nl.agent
    async def both() -> list[Any]:
        async def listen() -> int:
            return await note(await nl.receive("n", type=int))

        return list(await asyncio.gather(long_body(), listen()))

    async def main() -> None:
        store = QuickStore()
        async with nl.Runtime(store) as rt:
            running = asyncio.create_task(rt.run(both, id="b"))
            await working.wait()
            signal(store, "b", "n", b"7")
            assert await running == ["worked", 7]
        row = store.read_run("b")
        assert row is not None
        assert row.epoch == 1, "a run with a body at work must not park"

    run_async(main)


def test_a_run_parks_when_the_last_body_ends() -> None:
    @nl.agent
    async def both() -> list[Any]:
        async def work() -> str:
            await did("a")
            return await did("b")

        return list(await asyncio.gather(work(), nl.receive("n")))

    async def main() -> None:
        store = QuickStore()
        async with nl.Runtime(store) as rt:
            running = asyncio.create_task(rt.run(both, id="b"))
            await until(lambda: store.read_run("b") and state(store, "b") is State.CHECKPOINTED)
            signal(store, "b", "n", b"7")
            assert await running == ["b", 7]

    run_async(main)


def test_two_receivers_of_one_name_get_one_signal_each() -> None:
    @nl.agent
    async def pair() -> list[int]:
        return sorted(await asyncio.gather(*(nl.receive("n", type=int) for _ in range(2))))

    async def main() -> None:
        store = QuickStore()
        async with nl.Runtime(store) as rt:
            running = asyncio.create_task(rt.run(pair, id="p"))
            for number in (b"1", b"2"):
                await until(lambda: store.read_run("p") and state(store, "p") is State.CHECKPOINTED)
                signal(store, "p", "n", number)
            assert await running == [1, 2]

    run_async(main)


def test_receive_times_out_and_the_same_on_replay() -> None:
    @nl.agent
    async def impatient() -> str:
        try:
            await nl.receive("never", timeout=0.12)
        except nl.TimedOut as late:
            await nl.receive("go")
            return str(late)
        return "?"

    async def main() -> None:
        store = QuickStore()
        async with nl.Runtime(store) as rt:
            running = asyncio.create_task(rt.run(impatient, id="i"))
            await until(lambda: (row := store.read_run("i")) and row.waits == "for the signal 'go'")
            signal(store, "i", "go")
            said = await running
        assert "no signal 'never' came in time" in said

    run_async(main)


def test_a_signal_that_does_not_fit_stays_and_can_be_taken_as_something_else() -> None:
    @nl.agent
    async def picky() -> list[str]:
        try:
            await nl.receive("n", type=int)
        except nl.UsageError as misfit:
            return [misfit.what, await nl.receive("n", type=str)]
        return []

    async def main() -> None:
        store = QuickStore()
        async with nl.Runtime(store) as rt:
            await rt.start(picky, id="p")
            signal(store, "p", "n", b'"text"')
            said, value = await rt.run(picky, id="p")
            assert value == "text"
            assert "signal 1 ('n')" in said

    run_async(main)


def test_a_wait_that_is_cancelled_is_withdrawn_and_replays() -> None:
    @nl.agent
    async def race() -> str:
        waiting = asyncio.create_task(nl.receive("never"))
        await nl.sleep(0.01)
        waiting.cancel()
        with suppress(asyncio.CancelledError):
            await waiting
        await nl.receive("go")
        return "won"

    async def main() -> None:
        store = QuickStore()
        async with nl.Runtime(store) as rt:
            running = asyncio.create_task(rt.run(race, id="r"))
            await until(lambda: (row := store.read_run("r")) and row.waits == "for the signal 'go'")
            signal(store, "r", "go")
            assert await running == "won"
        assert kinds(store, "r").count(Kind.WITHDRAWN.value) == 1

    run_async(main)


def test_a_foreign_timer_across_a_wait_is_refused() -> None:
    @nl.agent
    async def hasty() -> None:
        async with asyncio.timeout(0.01):
            await nl.receive("never")

    async def main() -> None:
        async with nl.Runtime(QuickStore()) as rt:
            with pytest.raises(nl.RunFailed, match=r"nl\.timeout"):
                await rt.run(hasty)

    run_async(main)


def test_sleep_until_a_moment_that_has_passed_costs_no_time() -> None:
    @nl.agent
    async def late() -> bool:
        before = nl.now()
        await nl.sleep_until(before - timedelta(days=1))
        return True

    async def main() -> None:
        async with nl.Runtime(QuickStore()) as rt:
            assert await rt.run(late)

    run_async(main)


@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf"), True, "1"])
def test_what_is_no_time_is_refused(seconds: Any) -> None:
    with pytest.raises(nl.UsageError, match="no time"):
        asyncio.run(nl.sleep(seconds))


def test_receive_is_not_for_steps() -> None:
    @nl.action
    async def wrong() -> None:
        await nl.receive("x")

    @nl.agent
    async def asks() -> None:
        await wrong()

    async def main() -> None:
        async with nl.Runtime(QuickStore()) as rt:
            with pytest.raises(nl.RunFailed, match="not for a step"):
                await rt.run(asks)

    run_async(main)


def test_a_run_whose_code_is_through_does_not_park_for_a_branch_that_waits() -> None:
    @nl.agent
    async def first_failure() -> None:
        async def fail() -> None:
            await did("x")
            raise KeyError("lost")

        await asyncio.gather(fail(), nl.receive("never"))

    @nl.agent
    async def forgetful() -> str:
        asyncio.create_task(nl.receive("never"))  # noqa: RUF006 (left behind on purpose)
        return await did("x")

    async def main() -> None:
        async with nl.Runtime(QuickStore()) as rt:
            with pytest.raises(nl.RunFailed, match="KeyError"):
                await rt.run(first_failure)
            assert await rt.run(forgetful) == "x"

    run_async(main)
