"""Cancel, pause and resume: at the next boundary, into running steps and waits, and code that resists."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

import ninelives as nl
from ninelives.core.model.run import State
from ninelives.engine.run import lifecycle, tasks
from tests.replay.lifetimes import QuickStore, run_async


@nl.action(name="count")
async def count(number: int) -> int:
    return number


@asynccontextmanager
async def worked(store: QuickStore) -> AsyncIterator[nl.Runtime]:
    """Give a runtime that works."""
    async with nl.Runtime(store) as rt:
        working = asyncio.create_task(rt.work())
        try:
            yield rt
        finally:
            working.cancel()
            with suppress(asyncio.CancelledError):
                await working


async def until(condition: Callable[[], Any]) -> None:
    """Wait for a condition."""
    while not condition():  # noqa: ASYNC110 (what happens in the store sets no event)
        await asyncio.sleep(0.002)


def row(store: QuickStore, run: str = "r") -> Any:
    return store.read_run(run)


def kinds(store: QuickStore, run: str = "r") -> list[str]:
    found = [record.kind.value for record in store.load_journal(run, since=0).records]
    return [kind for kind in found if kind != "intent"]


# Cancel ------------------------------------------------------------------------------------------


def test_cancel_reaches_into_a_running_step_and_the_code_cleans_up() -> None:
    inside, cleaned = asyncio.Event(), []

    @nl.action
    async def endless() -> None:
        inside.set()
        await asyncio.Event().wait()

    @nl.agent
    async def agent() -> None:
        try:
            await endless()
        finally:
            cleaned.append("agent")

    async def main() -> None:
        store = QuickStore()
        async with worked(store) as rt:
            run = await rt.start(agent, id="r")
            await inside.wait()
            await run.cancel()
            with pytest.raises(nl.RunCancelled):
                await run.result()
            await run.cancel()
        assert cleaned == ["agent"]
        assert kinds(store) == ["created", "withdrawn"]

    run_async(main)


def test_cancel_ends_a_wait_in_memory_and_a_parked_one() -> None:
    inside = asyncio.Event()

    @nl.action
    async def endless() -> None:
        inside.set()
        await asyncio.Event().wait()

    @nl.agent
    async def busy() -> None:
        await asyncio.gather(nl.receive("never"), endless())

    @nl.agent
    async def parked() -> None:
        await nl.receive("never")

    async def main() -> None:
        store = QuickStore()
        async with worked(store) as rt:
            first, second = await rt.start(busy, id="a"), await rt.start(parked, id="b")
            await inside.wait()
            await until(lambda: row(store, "b").state is State.CHECKPOINTED)
            for run in (first, second):
                await run.cancel()
                with pytest.raises(nl.RunCancelled):
                    await run.result()

    run_async(main)


def test_cancelled_code_begins_no_step_and_a_swallowed_cancel_ends_the_run_all_the_same() -> None:
    inside, after = asyncio.Event(), []

    @nl.action
    async def endless() -> None:
        inside.set()
        await asyncio.Event().wait()

    @nl.agent
    async def stubborn() -> str:
        for _ in range(3):
            try:
                await endless()
            except asyncio.CancelledError:
                after.append("cancelled")
        return "never mind"

    async def main() -> None:
        store = QuickStore()
        async with worked(store) as rt:
            run = await rt.start(stubborn, id="r")
            await inside.wait()
            await run.cancel()
            with pytest.raises(nl.RunCancelled):
                await run.result()
        assert after == ["cancelled"] * 3
        assert kinds(store) == ["created", "withdrawn"]

    run_async(main)


def test_code_that_never_leaves_is_abandoned_and_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifecycle, "STOP_SECONDS", 0.05)
    monkeypatch.setattr(tasks, "ABANDON_SECONDS", 0.05)
    inside, let_go, done = asyncio.Event(), asyncio.Event(), []

    @nl.agent
    async def clinging() -> None:
        inside.set()
        while not let_go.is_set():
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
            with suppress(asyncio.CancelledError):
                done.append(await count(1))

    @nl.agent
    async def other() -> int:
        return await count(2)

    async def main() -> None:
        store = QuickStore()
        async with worked(store) as rt:
            run = await rt.start(clinging, id="r")
            await inside.wait()
            await run.cancel()
            with pytest.raises(nl.RunCancelled):
                await run.result()
            assert await (await rt.start(other)).result() == 2
        assert done == []
        assert len(asyncio.all_tasks()) == 1, "nobody has to wait for what was abandoned"

    run_async(main)


def test_a_plain_agent_is_cancelled_at_its_next_call() -> None:
    inside, go = threading.Event(), threading.Event()
    said: list[str] = []

    @nl.action
    def plain(number: int) -> int:
        inside.set()
        go.wait(30)
        return number

    @nl.agent
    def agent() -> None:
        try:
            plain(1)
            said.append("went on")
            plain(2)
        except BaseException as error:
            said.append(type(error).__name__)
            raise

    async def main() -> None:
        store = QuickStore()
        async with worked(store) as rt:
            run = await rt.start(agent, id="r")
            await asyncio.to_thread(inside.wait)
            await run.cancel()
            await until(lambda: rt._executor.executions["r"].stopped)
            go.set()
            with pytest.raises(nl.RunCancelled):
                await run.result()
        assert said == ["CancelledError"]

    run_async(main)


def test_a_finished_run_cannot_be_cancelled_or_paused() -> None:
    @nl.agent
    async def agent() -> int:
        return await count(1)

    async def main() -> None:
        async with nl.Runtime(QuickStore()) as rt:
            await rt.run(agent, id="r")
            run = await rt.get("r")
            for control in (run.cancel, run.pause, run.resume):
                with pytest.raises(nl.RunFinished):
                    await control()

    run_async(main)


# Pause -------------------------------------------------------------------------------------------


def test_a_paused_run_finishes_its_body_and_stops_before_the_next() -> None:
    inside, go, bodies = asyncio.Event(), asyncio.Event(), []

    @nl.action
    async def body(number: int) -> int:
        bodies.append(number)
        inside.set()
        await go.wait()
        return number

    @nl.agent
    async def agent() -> list[int]:
        return [await body(number) for number in range(3)]

    async def main() -> None:
        store = QuickStore()
        async with worked(store) as rt:
            run = await rt.start(agent, id="r")
            await inside.wait()
            await run.pause()
            await until(lambda: rt._executor.executions["r"].phase is not lifecycle.OPEN)
            go.set()
            await until(lambda: row(store).state is State.CHECKPOINTED)
            assert (bodies, row(store).paused, row(store).deaths) == ([0], True, 0)
            assert kinds(store) == ["created", "result"]
            await run.resume()
            assert await run.result() == [0, 1, 2]
        assert bodies == [0, 1, 2]

    run_async(main)


def test_a_run_resumed_before_it_stopped_goes_on_in_memory() -> None:
    inside, go = asyncio.Event(), asyncio.Event()

    @nl.action
    async def body() -> int:
        inside.set()
        await go.wait()
        return 1

    @nl.agent
    async def agent() -> int:
        return await body() + await count(1)

    async def main() -> None:
        store = QuickStore()
        async with worked(store) as rt:
            run = await rt.start(agent, id="r")
            await inside.wait()
            await run.pause()
            await until(lambda: rt._executor.executions["r"].phase is not lifecycle.OPEN)
            await run.resume()
            await until(lambda: rt._executor.executions["r"].phase is lifecycle.OPEN)
            go.set()
            assert await run.result() == 2
        assert row(store).epoch == 1

    run_async(main)


def test_a_paused_run_that_waits_keeps_its_signal_for_later() -> None:
    @nl.agent
    async def agent() -> Any:
        return await nl.receive("x")

    async def main() -> None:
        store = QuickStore()
        async with worked(store) as rt:
            run = await rt.start(agent, id="r")
            await until(lambda: row(store).state is State.CHECKPOINTED)
            await run.pause()
            await run.signal("x", 7)
            assert await run.status() is State.CHECKPOINTED
            await run.resume()
            assert await run.result() == 7

    run_async(main)


def test_a_paused_run_can_be_cancelled() -> None:
    @nl.agent
    async def agent() -> Any:
        return await nl.receive("x")

    async def main() -> None:
        store = QuickStore()
        async with worked(store) as rt:
            run = await rt.start(agent, id="r")
            await until(lambda: row(store).state is State.CHECKPOINTED)
            await run.pause()
            await run.cancel()
            with pytest.raises(nl.RunCancelled):
                await run.result()

    run_async(main)


# What would end the process -------------------------------------------------------------------------


@pytest.mark.parametrize("leaving", [SystemExit(3), KeyboardInterrupt()])
def test_an_exit_in_a_body_fails_the_step(leaving: BaseException) -> None:
    @nl.action
    async def rash() -> None:
        raise leaving

    @nl.agent
    async def agent() -> str:
        try:
            await rash()
        except nl.StepFailed as failed:
            return str(failed)
        return ""

    async def main() -> None:
        async with nl.Runtime(QuickStore()) as rt:
            assert type(leaving).__name__ in await rt.run(agent)

    run_async(main)


def test_an_exit_in_an_agent_or_a_branch_fails_the_run() -> None:
    @nl.agent
    async def rash() -> None:
        await count(1)
        sys.exit(3)

    @nl.agent
    async def branching() -> None:
        async def leave() -> None:
            await count(1)
            sys.exit(4)

        await asyncio.gather(leave(), nl.receive("never"))

    @nl.agent
    def plain() -> None:
        sys.exit(5)

    async def main() -> None:
        async with nl.Runtime(QuickStore()) as rt:
            for agent, code in ((rash, 3), (branching, 4), (plain, 5)):
                with pytest.raises(nl.RunFailed, match=rf"SystemExit\({code}\)"):
                    await rt.run(agent)

    run_async(main)


def test_a_branch_cancelled_before_it_began_leaves_no_warning() -> None:
    @nl.agent
    async def agent() -> int:
        async def never() -> None:
            await count(0)

        task = asyncio.create_task(never())
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        return await count(1)

    async def main() -> None:
        async with nl.Runtime(QuickStore()) as rt:
            assert await rt.run(agent) == 1

    run_async(main)
