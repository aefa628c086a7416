"""Business keys in the engine: one effect per key over all runs, and its result for all who ask."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import pytest

import ninelives as nl
from ninelives.core.model.key import Key, KeyState
from ninelives.core.model.run import Kind
from ninelives.runtime import ProcessOptions
from tests.replay.lifetimes import QuickStore, Stage, once, run_async, twice
from tests.unit.test_once import SetForward

T = TypeVar("T")
DEADLINE_SECONDS = 30.0


async def until(condition: Callable[[], T]) -> T:
    """Wait until a condition gives something."""
    async with asyncio.timeout(DEADLINE_SECONDS):
        while True:
            if found := condition():
                return found
            await asyncio.sleep(0.01)


def key_of(store: QuickStore, key: str = "pay:a") -> Any:
    return store.read_keys([key])[key]


@pytest.mark.parametrize("resumable", [True, False])
def test_a_settled_key_gives_its_result_to_every_run(resumable: bool) -> None:
    store, done = QuickStore(), []

    @nl.action(name="pay", resumable=resumable, key="pay:{order}")
    async def pay(order: str, cents: int) -> dict[str, int]:
        done.append(nl.key())
        return {order: cents}

    @nl.agent(name="payer")
    async def agent() -> list[Any]:
        return [await pay("a", 5), await pay("a", 5)]

    for run in ("one", "two"):
        assert once(agent, store=store, id=run) == [{"a": 5}, {"a": 5}]
    assert done == ["pay:a"]
    assert key_of(store).state is KeyState.SETTLED


def test_a_large_result_is_shared_too() -> None:
    store, large = QuickStore(), "x" * 200_000

    @nl.action(name="pay", key="pay:{order}")
    async def pay(order: str) -> str:
        return large

    @nl.agent(name="payer")
    async def agent() -> int:
        return len(await pay("a"))

    assert [once(agent, store=store, id=run) for run in ("one", "two")] == [200_000] * 2


def test_other_arguments_are_a_conflict_that_names_both() -> None:
    store = QuickStore()

    @nl.action(name="pay", resumable=False, key="pay:{order}")
    async def pay(order: str, cents: int) -> int:
        return cents

    @nl.agent(name="payer")
    async def agent(cents: int) -> str:
        try:
            return str(await pay("a", cents))
        except nl.KeyConflict as error:
            return str(error)

    assert once(agent, 5, store=store, id="one") == "5"
    said = once(agent, 6, store=store, id="two")
    assert "belongs to run 'one' with other arguments" in said
    assert "run 'two'" in said


def test_identity_says_which_arguments_count() -> None:
    store = QuickStore()

    @nl.action(name="pay", key="pay:{order}", identity="order")
    async def pay(order: str, note: str) -> str:
        return note

    @nl.agent(name="payer")
    async def agent(note: str) -> str:
        return await pay("a", note)

    assert once(agent, "first", store=store, id="one") == "first"
    assert once(agent, "second", store=store, id="two") == "first"


def test_a_key_may_be_a_function_and_is_checked() -> None:
    @nl.action(name="pay", key=lambda order: f"pay {order}")
    async def pay(order: str) -> str:
        return nl.key()

    @nl.agent(name="payer")
    async def agent(order: str) -> str:
        return await pay(order)

    assert once(agent, "a") == "pay a"
    with pytest.raises(nl.RunFailed, match="not printable"):
        once(agent, "a\nb")


def test_who_asks_while_another_holds_the_key_waits_and_says_so() -> None:
    store, done = QuickStore(), []
    gate = asyncio.Event()

    @nl.action(name="pay", resumable=False, key="pay:{order}")
    async def pay(order: str) -> str:
        done.append(order)
        await gate.wait()
        return "paid"

    @nl.agent(name="payer")
    async def agent() -> str:
        return await pay("a")

    def waits() -> str:
        row = store.read_run("two")
        return row.waits if row is not None and row.state == "checkpointed" else ""

    async def main() -> list[Any]:
        async with nl.Runtime(store) as rt:
            working = asyncio.create_task(rt.work())
            runs = [await rt.start(agent, id="one")]
            await until(lambda: done)
            runs.append(await rt.start(agent, id="two"))
            assert await until(waits) == "for the key 'pay:a', held by run 'one'"
            gate.set()
            results = [await run.result(DEADLINE_SECONDS) for run in runs]
            working.cancel()
            with suppress(asyncio.CancelledError):
                await working
            return results

    assert run_async(main) == ["paid", "paid"]
    assert done == ["a"]


def test_two_branches_of_one_run_share_one_effect() -> None:
    done: list[str] = []

    @nl.action(name="pay", resumable=False, key="pay:{order}")
    async def pay(order: str) -> str:
        done.append(order)
        await asyncio.sleep(0.02)
        return "paid"

    @nl.agent(name="payer")
    async def agent() -> list[str]:
        return await nl.gather(pay("a"), pay("a"), pay("b"))

    assert once(agent) == ["paid"] * 3
    assert sorted(done) == ["a", "b"]


def test_an_open_start_that_waits_for_its_key_in_another_branch_is_not_withdrawn() -> None:
    store, stage = QuickStore(), Stage()
    holds, is_cancelled = asyncio.Event(), asyncio.Event()

    async def verify(order: str, note: str) -> nl.Happened[str]:
        holds.set()  # the first branch holds the key, and the second waits for it
        await is_cancelled.wait()
        return nl.Happened(note)

    @nl.action(name="pay", resumable=False, key="pay:{order}", identity="order", verify=verify)
    async def pay(order: str, note: str) -> str:
        await stage.stop_here()
        return note

    @nl.action(name="before")
    async def before() -> None: ...

    async def first() -> str:
        return await pay("a", "first")

    async def second() -> str:
        return await pay("a", "second")

    @nl.agent(name="payer")
    async def agent() -> str:
        if not stage.is_second:
            await before()
            return await asyncio.create_task(second())
        holder, waiter = asyncio.create_task(first()), asyncio.create_task(second())
        await asyncio.sleep(0)
        await before()  # both may begin from here on: the first comes first
        await holds.wait()
        waiter.cancel()
        is_cancelled.set()
        return await holder

    assert twice(stage, agent, store=store) == "first"
    records = store.load_journal("run", since=0).records
    assert [one.kind for one in records if "second" in one.step] == [Kind.INTENT]
    assert key_of(store).state is KeyState.SETTLED


def test_branches_that_wait_for_a_failing_one_try_one_after_the_other() -> None:
    at_once: list[int] = []
    running = 0

    @nl.action(name="pay", key="pay:{order}")
    async def pay(order: str) -> str:
        nonlocal running
        running += 1
        at_once.append(running)
        await asyncio.sleep(0.01)
        running -= 1
        raise ValueError("no")

    @nl.agent(name="payer")
    async def agent() -> int:
        told = await asyncio.gather(*(pay("a") for _ in range(4)), return_exceptions=True)
        return sum(isinstance(error, ValueError) for error in told)

    assert once(agent) == 4
    assert at_once == [1] * 4


def test_proven_not_done_is_released_for_the_next_generation() -> None:
    store, keys = QuickStore(), []

    @nl.action(name="pay", resumable=False, key="pay:{order}", retry=nl.Retry(attempts=1))
    async def pay(order: str) -> str:
        keys.append(nl.key())
        if len(keys) == 1:
            raise nl.NotDone("declined")
        return "paid"

    @nl.agent(name="payer")
    async def agent() -> str:
        try:
            return await pay("a")
        except nl.NotDone:
            return "declined"

    assert [once(agent, store=store, id=run) for run in ("one", "two")] == ["declined", "paid"]
    assert keys == ["pay:a", "pay:a~1"]


def test_a_resumable_action_that_fails_passes_its_key_on() -> None:
    store, keys = QuickStore(), []

    @nl.action(name="pay", key="pay:{order}")
    async def pay(order: str) -> str:
        keys.append(nl.key())
        if len(keys) == 1:
            raise ValueError("no")
        return "paid"

    @nl.agent(name="payer")
    async def agent() -> str:
        try:
            return await pay("a")
        except ValueError:
            return "failed"

    assert [once(agent, store=store, id=run) for run in ("one", "two")] == ["failed", "paid"]
    assert keys == ["pay:a", "pay:a"]


def test_a_killed_owner_goes_on_with_its_key() -> None:
    stage, store = Stage(), QuickStore()

    @nl.action(name="pay", key="pay:{order}")
    async def pay(order: str) -> str:
        stage.did(nl.key())
        await stage.stop_here()
        return "paid"

    @nl.agent(name="payer")
    async def agent() -> str:
        return await pay("a")

    assert twice(stage, agent, store=store) == "paid"
    assert stage.executed == ["pay:a"]


@pytest.mark.parametrize("happened", [True, False])
def test_a_doubt_whose_owner_has_ended_is_settled_by_the_next_asker(happened: bool) -> None:
    store, done = QuickStore(), []

    async def look(order: str, key: str) -> object:
        return nl.Happened("it was paid") if happened else nl.NotHappened()

    def declare(**options: Any) -> Any:
        @nl.action(name="pay", resumable=False, key="pay:{order}", timeout=0.05, **options)
        async def pay(order: str) -> str:
            done.append(nl.key())
            if len(done) == 1:
                raise OSError("gone")
            return "paid"

        return pay

    blind, seeing = declare(in_doubt="raise"), declare(verify=look)

    @nl.agent(name="payer")
    async def agent(sees: bool) -> str:
        try:
            return str(await (seeing if sees else blind)("a"))
        except nl.InDoubt:
            return "in doubt"

    assert once(agent, False, store=store, id="one") == "in doubt"
    assert key_of(store).state is KeyState.ORPHANED
    assert once(agent, True, store=store, id="two") == ("it was paid" if happened else "paid")
    assert done == (["pay:a"] if happened else ["pay:a", "pay:a~1"])
    assert key_of(store).state is KeyState.SETTLED


def test_asking_again_for_what_is_in_doubt_settles_the_first_start() -> None:
    done: list[int] = []

    @nl.action(name="pay", resumable=False, key="pay:{order}", in_doubt="raise")
    async def pay(order: str) -> str:
        done.append(1)
        raise OSError("gone")

    @nl.agent(name="payer")
    async def agent() -> int:
        for _ in range(2):
            with suppress(nl.InDoubt):
                await pay("a")
        return len(done)

    assert once(agent) == 1


def test_a_key_may_be_used_again_after_its_window() -> None:
    store, done = QuickStore(), []

    @nl.action(name="pay", key="pay:{order}", key_window=0)
    async def pay(order: str) -> int:
        done.append(nl.key())
        return len(done)

    @nl.agent(name="payer")
    async def agent() -> int:
        return await pay("a")

    assert [once(agent, store=store, id=run) for run in ("one", "two")] == [1, 2]
    assert done == ["pay:a", "pay:a~1"]


def test_a_wall_clock_that_is_set_forward_does_not_end_the_window_of_a_key() -> None:
    clock, done = SetForward(), list[str]()
    store = QuickStore()
    store._clock = clock

    @nl.action(name="pay", key="pay:{order}", key_window=60)
    async def pay(order: str) -> int:
        done.append(nl.key())
        return len(done)

    @nl.agent(name="payer")
    async def agent() -> int:
        return await pay("a")

    async def main() -> list[Any]:
        async with nl.Runtime(store, process=ProcessOptions(clock=clock)) as rt:
            working = asyncio.create_task(rt.work())
            first = await (await rt.start(agent, id="one")).result(DEADLINE_SECONDS)
            clock.set_ms = 3_600_000
            second = await (await rt.start(agent, id="two")).result(DEADLINE_SECONDS)
            working.cancel()
            return [first, second]

    assert run_async(main) == [1, 1]
    assert done == ["pay:a"]


def test_the_intent_reserves_and_the_result_settles_in_one_commit_each() -> None:
    store, seen = QuickStore(), []

    @nl.action(name="pay", resumable=False, key="pay:{order}")
    async def pay(order: str) -> str:
        seen.append(key_of(store).state)
        return "paid"

    @nl.agent(name="payer")
    async def agent() -> str:
        return await pay("a")

    once(agent, store=store, id="run")
    assert seen == [KeyState.RESERVED]
    kinds = [record.kind for record in store.load_journal("run", since=0).records if record.step]
    assert kinds == [Kind.INTENT, Kind.RESULT]


def test_who_waits_for_a_key_that_was_taken_again_meanwhile_is_told_of_its_end() -> None:
    held, looks = list[int](), list[int]()
    busy, gates = asyncio.Event(), [asyncio.Event(), asyncio.Event()]

    class Slow(QuickStore):
        """A store whose reader of keys comes too late."""

        def read_keys(self, keys: Sequence[str]) -> dict[str, Key]:
            """Read; a key that was let go, only once it is held again."""
            is_again = gates[0].is_set()
            while (found := super().read_keys(keys))["pay:a"].state is KeyState.FREE:
                time.sleep(0.001)
            if is_again:
                looks.append(1)
            return found

    store = Slow()

    @nl.action(name="pay", key="pay:{order}", identity="order", retry=nl.Retry(attempts=1))
    async def pay(order: str, who: str) -> str:
        held.append(1)
        number = len(held)
        if number <= 2:
            await gates[number - 1].wait()
        if number == 1:
            raise RuntimeError("the till is busy")
        return who

    @nl.action(name="other")
    async def other() -> None:
        await busy.wait()

    @nl.agent(name="holder")
    async def holder() -> str:
        with suppress(RuntimeError):
            await pay("a", "holder")
        return await pay("a", "holder")  # again at once: who waits finds it held

    @nl.agent(name="waiter")
    async def waiter() -> str:
        return (await asyncio.gather(pay("a", "waiter"), other()))[0]

    def asked() -> int:
        found = store.load_journal("waiter", since=0).records
        return sum(record.kind is Kind.WAITING for record in found)

    async def main() -> list[Any]:
        async with nl.Runtime(store) as rt:
            working = asyncio.create_task(rt.work())
            runs = [await rt.start(holder, id="holder")]
            await until(lambda: held)
            runs.append(await rt.start(waiter, id="waiter"))
            await until(asked)
            gates[0].set()
            await until(lambda: looks)  # the waiter reads, and finds that it is held again
            busy.set()
            await until(lambda: store.read_run("waiter").state == "checkpointed")  # type: ignore[union-attr]
            gates[1].set()
            results = [await run.result(DEADLINE_SECONDS) for run in runs]
            working.cancel()
            return results

    assert run_async(main) == ["holder", "holder"]


def test_a_doubt_that_is_taken_over_from_a_living_worker_is_not_called_not_happened() -> None:
    store, starts, go_on = QuickStore(), list[int](), threading.Event()

    @nl.action(
        name="pay", resumable=False, key="pay:{order}", verify=lambda order: nl.NotHappened(), timeout=0.1
    )
    async def pay(order: str) -> str:
        starts.append(1)
        return str(await asyncio.to_thread(go_on.wait, DEADLINE_SECONDS))

    @nl.agent(name="payer")
    async def agent() -> str:
        return await pay("a")

    async def main() -> None:
        async with nl.Runtime(store) as rt:
            working = asyncio.create_task(rt.work())
            first = await rt.start(agent, id="one")
            await until(lambda: key_of(store).state is KeyState.IN_DOUBT if starts else None)
            await first.cancel()
            with suppress(nl.RunError):
                await first.result(DEADLINE_SECONDS)
            second = await rt.start(agent, id="two")
            try:
                with pytest.raises(nl.RunEscalated):
                    await second.result(DEADLINE_SECONDS)
            finally:
                go_on.set()
                working.cancel()

    run_async(main)
    assert starts == [1]
