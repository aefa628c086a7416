"""Bodies that end in what is no Exception, and withdrawn steps that nobody cancels on replay."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

import ninelives as nl
from ninelives.core.model.run import Kind
from ninelives.engine.commit import large_bodies
from tests.replay.lifetimes import QuickStore, Stage, first_life, once, run_async, second_life, twice

QUICK = nl.Retry(attempts=3, base_seconds=0.0001, max_seconds=0.001)


class Leaving(BaseException):
    """An error of somebody's own that no `except Exception` sees."""


async def gone() -> int:
    """Wait for a task that was cancelled, as a client does whose pool was closed."""
    task = asyncio.create_task(asyncio.sleep(60))
    task.cancel()
    await task
    return 1


def stopping(stage: Stage) -> Any:
    """Return the step at which the first life ends."""

    async def stop() -> None:
        await stage.stop_here()

    return nl.action(stop, name="stop")


def told_twice(make: Callable[[Stage], Any]) -> list[str]:
    """Return what the agent was told by a step in each of two lives."""
    stage, seen = Stage(), list[str]()
    step, stop = make(stage), stopping(stage)

    @nl.agent(name="told-twice")
    async def agent() -> None:
        try:
            await step()
        except BaseException as error:
            seen.append(repr(error))
        await stop()

    twice(stage, agent)
    assert stage.executed == []  # nothing was executed again
    return seen


@pytest.mark.parametrize("options", [{}, {"reads_only": True}, {"key": "order:{number}"}], ids=str)
def test_a_cancellation_that_nobody_asked_for_is_a_failure_in_both_lives(options: dict[str, Any]) -> None:
    def make(stage: Stage) -> Any:
        async def fetch(number: int = 1) -> int:
            stage.did("fetch")
            return await gone()

        return nl.action(fetch, name="fetch", retry=QUICK, **options)

    seen = told_twice(make)
    assert seen == ["Transient('fetch ended in CancelledError, and no code cancelled it')"] * 2


def test_a_cancellation_that_nobody_asked_for_passes() -> None:
    tries: list[int] = []

    @nl.action(name="fetch", retry=QUICK)
    async def fetch() -> int:
        tries.append(nl.info().attempt)
        return await gone() if len(tries) < 3 else 7

    @nl.agent(name="patient")
    async def agent() -> int:
        return await fetch()

    assert once(agent) == 7
    assert tries == [1, 2, 3]


def test_a_cancelled_body_of_a_plain_step_fails_it() -> None:
    stage, seen = Stage(), list[str]()
    stop = stopping(stage)

    @nl.action(name="plain-fetch", retry=nl.Retry(attempts=1))
    def fetch() -> int:
        raise asyncio.CancelledError

    @nl.agent(name="plain-told")
    async def agent() -> None:
        with pytest.raises(nl.Transient) as told:
            await asyncio.to_thread(fetch)
        seen.append(str(told.value))
        await stop()

    twice(stage, agent)
    assert seen == ["plain-fetch ended in CancelledError, and no code cancelled it"] * 2


def test_a_body_that_may_not_be_repeated_and_ends_in_a_cancellation_is_in_doubt_and_says_why() -> None:
    @nl.action(name="pay", resumable=False, in_doubt="raise")
    async def pay() -> int:
        return await gone()

    @nl.agent(name="payer")
    async def agent() -> str:
        with pytest.raises(nl.InDoubt) as told:
            await pay()
        return str(told.value)

    assert "ended in CancelledError, and no code cancelled it" in once(agent)


@pytest.mark.parametrize("kind", [GeneratorExit, Leaving, SystemExit], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("options", [{}, {"key": "order:{number}"}], ids=str)
def test_whatever_leaves_a_body_is_recorded_as_its_failure(
    kind: type[BaseException], options: dict[str, Any]
) -> None:
    def make(stage: Stage) -> Any:
        async def fetch(number: int = 1) -> int:
            stage.did("fetch")
            raise kind("x")

        return nl.action(fetch, name="fetch", retry=QUICK, **options)

    assert told_twice(make) == [f"StepFailed('{kind.__name__}: x')"] * 2


def test_a_withdrawn_step_that_nothing_cancels_any_more_is_a_divergence() -> None:
    stage, store = Stage(), QuickStore()
    stop = stopping(stage)

    @nl.action(name="slow")
    async def slow() -> str:
        await asyncio.Event().wait()
        return "never"

    @nl.agent(name="forgetful")
    async def agent() -> str:
        task = asyncio.create_task(slow())
        await asyncio.sleep(0.01)
        if not stage.is_second:
            task.cancel()
        found = (await asyncio.gather(task, return_exceptions=True))[0]
        await stop()
        return repr(found)

    async def main() -> None:
        await first_life(stage, store, agent)
        kinds = [record.kind for record in large_bodies.load(store, "run").records]
        assert Kind.WITHDRAWN in kinds
        with pytest.raises(nl.RunEscalated):
            await second_life(store, agent)
        (item,) = store.list_inbox(run="run")
        assert "slow" in item.step
        assert b"now nothing cancels it" in item.body

    run_async(main)


def test_a_body_that_cancels_its_own_task_does_not_hang_the_next_life() -> None:
    stage, store = Stage(), QuickStore()
    stop = stopping(stage)

    @nl.action(name="selfish")
    async def selfish() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)

    @nl.agent(name="owner")
    async def agent() -> None:
        task = asyncio.create_task(selfish())
        await asyncio.gather(task, return_exceptions=True)
        await stop()

    async def main() -> None:
        await first_life(stage, store, agent)
        with pytest.raises(nl.RunEscalated, match="now nothing cancels it"):
            await second_life(store, agent)

    run_async(main)


def test_a_withdrawn_step_waits_for_the_sleep_after_which_it_is_cancelled() -> None:
    stage, seen = Stage(), list[str]()
    stop = stopping(stage)

    @nl.action(name="slow")
    async def slow() -> None:
        await asyncio.Event().wait()

    @nl.agent(name="sleeper")
    async def agent() -> None:
        task = asyncio.create_task(slow())
        await asyncio.sleep(1.5)  # of the agent's own: longer than a run at rest is given
        task.cancel()
        seen.append(type((await asyncio.gather(task, return_exceptions=True))[0]).__name__)
        await stop()

    twice(stage, agent)
    assert seen == ["CancelledError"] * 2
