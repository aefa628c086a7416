"""Steps called in threads and event loops that the agent's code brought along: the same in every life."""

from __future__ import annotations

import asyncio
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from pathlib import Path
from typing import Any

import pytest

import ninelives as nl
from ninelives.core.model.run import Kind
from ninelives.engine.run import run_threads
from tests.replay.lifetimes import QuickStore, Stage, once, run_async, twice

LIMIT_SECONDS = 60.0


class Steps:
    """Steps of each kind; what they do is noted."""

    def __init__(self) -> None:
        self.stage = stage = Stage()

        @nl.action(name="fetch")
        def fetch(number: int) -> int:
            stage.did(f"fetch {number}")
            return number * 10

        @nl.action(name="ask-model")
        async def ask_model(number: int) -> int:
            stage.did(f"model {number}")
            await asyncio.sleep(0.001)
            return number * 100

        @nl.action(name="pay", resumable=False, key="pay:{number}")
        async def pay(number: int) -> int:
            stage.did(f"pay {number}")
            return number

        @nl.action(name="pay-plainly", resumable=False)
        def pay_plainly(number: int) -> int:
            stage.did(f"pay {number}")
            return number

        @nl.action(name="stop")
        async def stop() -> None:
            await stage.stop_here()

        self.fetch, self.ask_model, self.pay, self.pay_plainly, self.stop = (
            fetch,
            ask_model,
            pay,
            pay_plainly,
            stop,
        )

    def stop_here(self) -> None:
        """Let the first life end here, on a plain agent's thread."""
        asyncio.run(self.stop())


def in_pool(size: int, works: list[Callable[[], Any]]) -> list[Any]:
    """Do pieces of work in a pool as frameworks do, each in a copy of the context."""
    with ThreadPoolExecutor(size) as pool:
        return [one.result() for one in [pool.submit(copy_context().run, work) for work in works]]


@pytest.mark.parametrize("size", [1, 4])
def test_steps_in_a_pool_of_a_plain_agent_are_found_on_replay(size: int) -> None:
    steps = Steps()

    def work(number: int) -> Callable[[], int]:
        return lambda: steps.fetch(number) + steps.pay_plainly(number) + steps.fetch(number + 100)

    @nl.agent(name="pooled")
    def agent() -> list[int]:
        got = in_pool(size, [work(number) for number in range(6)])
        steps.stop_here()
        return [*got, steps.fetch(1000)]

    expected = [number * 21 + 1000 for number in range(6)]
    assert twice(steps.stage, agent) == [*expected, 10000]
    assert steps.stage.executed == ["fetch 1000"]


def test_steps_in_a_thread_of_its_own_are_found_on_replay() -> None:
    steps = Steps()

    @nl.agent(name="threaded")
    async def agent() -> list[int]:
        got: list[int] = []
        for number in range(3):
            work = threading.Thread(
                target=copy_context().run, args=(lambda n=number: got.append(steps.fetch(n)),)
            )
            work.start()
            while work.is_alive():  # noqa: ASYNC110 (a thread has no event)
                await asyncio.sleep(0.001)
        await steps.stop()
        return got

    assert twice(steps.stage, agent) == [0, 10, 20]
    assert steps.stage.executed == []


def test_async_steps_in_an_event_loop_of_a_plain_agent_are_found_on_replay() -> None:
    steps = Steps()

    async def talk(number: int) -> int:
        first = await steps.ask_model(number)
        return first + await steps.pay(number)

    async def inner() -> list[int]:
        alone = await talk(1)
        several = await asyncio.gather(talk(2), talk(3))
        await nl.sleep(0.001)
        return [alone, *several]

    @nl.agent(name="nested")
    def agent() -> list[int]:
        got = asyncio.run(inner())
        steps.stop_here()
        return [*got, steps.fetch(7)]

    assert twice(steps.stage, agent) == [101, 202, 303, 70]
    assert steps.stage.executed == ["fetch 7"]


def test_async_steps_in_an_event_loop_in_a_thread_are_found_on_replay() -> None:
    """As frameworks' `run_sync` does, called in a thread of an async agent."""
    steps = Steps()

    @nl.agent(name="run-sync")
    async def agent() -> list[int]:
        got = [await steps.ask_model(1)]
        got.append(await asyncio.to_thread(lambda: asyncio.run(steps.ask_model(2))))
        await steps.stop()
        return got

    assert twice(steps.stage, agent) == [100, 200]
    assert steps.stage.executed == []


def test_waits_on_another_event_loop_park_the_run() -> None:
    seen: list[int] = []

    async def inner() -> int:
        seen.append(1)
        return await nl.receive("go", type=int)

    @nl.agent(name="waiting")
    def agent() -> int:
        return asyncio.run(inner())

    async def main() -> None:
        async with nl.Runtime(QuickStore()) as rt:
            run = await rt.start(agent, id="run")
            await rt.work(until_idle=True)
            assert (await run.status()) == "checkpointed"
            await run.signal("go", 5)
            assert await rt.run(agent, id="run") == 5

    run_async(main)
    assert len(seen) == 2


def test_a_step_that_is_cancelled_on_another_event_loop_is_withdrawn_in_both_lives() -> None:
    stage, told, store = Stage(), list[str](), QuickStore()

    @nl.action(name="slow")
    async def slow() -> int:
        await asyncio.sleep(30)
        return 1

    @nl.action(name="stop")
    async def stop() -> None:
        await stage.stop_here()

    async def inner() -> None:
        try:
            async with asyncio.timeout(0.05):
                await slow()
        except BaseException as error:
            told.append(type(error).__name__)
        await stop()

    @nl.agent(name="limited")
    def agent() -> str:
        asyncio.run(inner())
        return told[-1]

    assert twice(stage, agent, store=store) == "TimeoutError"
    assert told == ["TimeoutError", "TimeoutError"]
    kinds = [one.kind for one in store.load_journal("run").records if "#slow#" in one.step]
    assert kinds[-1] is Kind.WITHDRAWN


def test_a_failure_and_an_error_of_use_reach_the_other_event_loop() -> None:
    @nl.action(name="fail", retry=nl.Retry(attempts=1))
    async def fail() -> None:
        raise ValueError("no such order")

    async def inner() -> list[str]:
        told = []
        try:
            await fail()
        except ValueError as error:
            told.append(str(error))
        try:
            async with nl.timeout(1):
                pass
        except nl.NoRun as error:
            told.append(type(error).__name__)
        return told

    @nl.agent(name="failing")
    def agent() -> list[str]:
        return asyncio.run(inner())

    assert once(agent) == ["no such order", "NoRun"]


@pytest.mark.parametrize("is_plain", [True, False])
def test_a_thread_without_the_context_is_refused_at_once(is_plain: bool) -> None:
    steps = Steps()

    def lost() -> str:
        try:
            steps.fetch(1) if is_plain else asyncio.run(steps.ask_model(1))
        except nl.NoRun as error:
            return str(error)
        return "went through"

    @nl.agent(name="lost")
    def agent() -> str:
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(lost).result()

    assert "was called outside a run" in once(agent)
    assert steps.stage.executed == []


def test_an_executor_that_loses_the_context_is_refused_at_once_in_every_life() -> None:
    steps, told = Steps(), list[str]()

    @nl.agent(name="executor")
    async def agent() -> None:
        for executor in (None, ThreadPoolExecutor(1)):
            try:
                await asyncio.get_running_loop().run_in_executor(executor, steps.fetch, 1)
            except nl.NoRun as error:
                told.append(type(error).__name__)
        await steps.stop()

    twice(steps.stage, agent)
    assert told == ["NoRun"] * 4
    assert steps.stage.executed == []


def test_threads_of_a_body_are_no_branches() -> None:
    steps, store = Steps(), QuickStore()

    @nl.action(name="outer")
    def outer() -> list[int]:
        return in_pool(2, [lambda: steps.fetch(1), lambda: asyncio.run(steps.ask_model(2))])

    @nl.agent(name="inside")
    def agent() -> list[int]:
        return outer()

    assert once(agent, store=store, id="run") == [10, 200]
    recorded = [one.step for one in store.load_journal("run", since=0).records if one.kind is Kind.RESULT]
    assert recorded == ["#outer#0"]


# --------------------------------------------------------------------------------------------- killed

KILLED = """
import asyncio, os, signal, sys
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
import ninelives as nl

def say(what):
    with open("ledger", "a") as ledger:
        ledger.write(what + "\\n")

@nl.action(resumable=False)
def pay(number: int) -> int:
    say(f"pay {number}")
    return number

@nl.action
async def think(number: int) -> int:
    await asyncio.sleep(0.001)
    say(f"think {number}")
    return number

def die():
    if sys.argv[1] == "die":
        os.kill(os.getpid(), signal.SIGKILL)

@nl.agent
def pool() -> int:
    def work(number):
        paid = pay(number)
        return paid + pay(number + 100)
    with ThreadPoolExecutor(4) as threads:
        got = [one.result() for one in [threads.submit(copy_context().run, work, n) for n in range(8)]]
    die()
    return sum(got)

@nl.agent
def loop() -> int:
    async def inner():
        return sum(await asyncio.gather(*(think(n) for n in range(8)))) + await think(100)
    got = asyncio.run(inner())
    die()
    return got + pay(1)

print(nl.run({"pool": pool, "loop": loop}[sys.argv[2]], id="x", store="sqlite:///runs.db"))
"""


@pytest.mark.parametrize(("how", "result"), [("pool", 856), ("loop", 129)])
def test_a_killed_process_with_threads_or_loops_of_its_own_repeats_nothing(
    how: str, result: int, tmp_path: Path
) -> None:
    script = tmp_path / "agent.py"
    script.write_text(KILLED)
    command = [sys.executable, str(script)]

    def live(*how: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*command, *how], cwd=tmp_path, timeout=LIMIT_SECONDS, capture_output=True, text=True, check=False
        )

    assert live("die", how).returncode == -signal.SIGKILL
    again = live("live", how)
    assert again.stdout.strip() == str(result), again.stderr
    done = (tmp_path / "ledger").read_text().split("\n")
    assert len(done) == len(set(done))


# Threads that wait for what the run's own code brings ----------------------------------------------------


def test_a_thread_that_waits_for_a_step_on_the_runs_loop_does_not_hang() -> None:
    steps = Steps()

    @nl.agent(name="threadsafe")
    async def agent() -> list[int]:
        loop = asyncio.get_running_loop()
        ask = asyncio.run_coroutine_threadsafe
        got = [await asyncio.to_thread(lambda: ask(steps.ask_model(1), loop).result())]
        await steps.stop()
        return [*got, await steps.ask_model(2)]

    assert twice(steps.stage, agent) == [100, 200]
    assert steps.stage.executed == ["model 2"]


@pytest.mark.parametrize("poll_seconds", [None, 0.01, 3.0])
def test_a_consumer_thread_that_calls_no_step_does_not_hang(poll_seconds: float | None) -> None:
    steps = Steps()

    @nl.agent(name="consumer")
    async def agent() -> list[int]:
        things: queue.Queue[int] = queue.Queue()

        def consume() -> int:
            while True:
                with suppress(queue.Empty):
                    return things.get(timeout=poll_seconds)

        consumer = asyncio.create_task(asyncio.to_thread(consume))
        await asyncio.sleep(0)
        things.put(await steps.ask_model(1))
        got = [await consumer]
        await steps.stop()
        return [*got, await steps.ask_model(2)]

    assert twice(steps.stage, agent) == [100, 200]
    assert steps.stage.executed == ["model 2"]


def test_a_thread_that_waits_for_an_event_with_a_limit_sees_it_in_every_life() -> None:
    steps = Steps()

    @nl.agent(name="event")
    async def agent() -> list[int]:
        event = threading.Event()
        waiting = asyncio.get_running_loop().run_in_executor(None, event.wait, 3)
        first = await steps.ask_model(1)
        event.set()
        got = [first, await steps.ask_model(int(await waiting))]
        await steps.stop()
        return got

    assert twice(steps.stage, agent) == [100, 100]
    assert steps.stage.executed == []


def test_a_plain_agents_thread_that_sleeps_keeps_its_place_on_replay() -> None:
    """Counting a sleeping thread as idle must not let a later outcome overtake its next call."""
    steps = Steps()

    @nl.agent(name="sleeper")
    async def agent() -> list[str]:
        order: list[str] = []

        def sleep_and_fetch() -> None:
            time.sleep(0.3)
            steps.fetch(1)
            order.append("thread")

        thread = asyncio.create_task(asyncio.to_thread(sleep_and_fetch))
        await nl.sleep(0.6)
        order.append("sleep")
        await thread
        await steps.stop()
        return order

    assert twice(steps.stage, agent) == ["thread", "sleep"]
    assert steps.stage.executed == []


def spin(until: Callable[[], bool]) -> None:
    """Compute; the loop without calls in it is always sampled at the same instruction."""
    while not until():
        for _ in range(1_000_000):
            pass


def test_a_thread_that_computes_holds_up_delivery() -> None:
    steps = Steps()

    @nl.agent(name="computes")
    async def agent() -> list[str]:
        order: list[str] = []

        def compute() -> None:
            began = time.thread_time()
            spin(lambda: time.thread_time() - began > 0.5)
            order.append("computed")

        async def step() -> None:
            await steps.ask_model(1)
            order.append("model")

        await asyncio.gather(asyncio.to_thread(compute), step())
        await steps.stop()
        return order

    assert twice(steps.stage, agent) == ["computed", "model"]


def test_a_thread_that_spins_for_an_outcome_is_reported_with_its_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(run_threads, "HELD_SECONDS", 0.3)
    steps, is_told = Steps(), threading.Event()

    @nl.agent(name="spins")
    async def agent() -> int:
        spinning = asyncio.create_task(asyncio.to_thread(spin, is_told.is_set))
        await asyncio.sleep(0)
        got = await steps.ask_model(1)
        is_told.set()
        await spinning
        return got

    async def life(store: QuickStore) -> list[str]:
        async with nl.Runtime(store) as rt:
            await rt.start(agent, id="run")
            await rt.work(until_idle=True)
            return [str(item.asked.what) for item in await rt.inbox()]

    async def main() -> list[str]:
        try:
            return await life(QuickStore())
        finally:
            is_told.set()

    (what,) = run_async(main)
    assert f"{__file__}:" in what
    assert "without a step" in what
