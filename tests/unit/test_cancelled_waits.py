"""Durable waits that are cancelled after their outcome is written and before the code is told of it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

import ninelives as nl
from ninelives.core.model.commit import Commit
from ninelives.core.model.run import Kind
from tests.crash.stores import open_at
from tests.replay.lifetimes import QuickStore, Stage, first_life, run_async, second_life, twice


class Overheard:
    """Any store; says on the event loop when a commit is written, before its verdict comes there."""

    def __init__(self, store: Any, is_it: Callable[[Commit], bool]) -> None:
        self._store, self._is_it = store, is_it
        self.written = asyncio.Event()
        self.loop: asyncio.AbstractEventLoop | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def commit(self, commits: Sequence[Commit]) -> Any:
        """Commit, and say so."""
        answer = self._store.commit(commits)
        if self.loop is not None and any(self._is_it(one) for one in commits):
            self.loop.call_soon_threadsafe(self.written.set)
        return answer


def outcome_of(name: str) -> Callable[[Commit], bool]:
    kinds = (Kind.RESULT, Kind.FAILURE, Kind.SIGNAL)
    return lambda commit: any(one.kind in kinds and f"#{name}#" in one.step for one in commit.records)


class Hasty:
    """An agent that cancels a wait at the moment when its outcome has been written."""

    def __init__(self, store: Any, name: str, wait: Callable[[], Any], then: Callable[[], Any]) -> None:
        self.stage, self.store = Stage(), Overheard(store, outcome_of(name))
        self.seen: list[str] = []

        @nl.action(name="stop")
        async def stop() -> None:
            await self.stage.stop_here()

        @nl.agent(name="hasty")
        async def agent() -> Any:
            self.store.loop = asyncio.get_running_loop()
            waiting = asyncio.ensure_future(wait())
            if self.stage.is_second:
                await asyncio.sleep(0.1)  # time enough to be told of whatever is on record
            else:
                await self.store.written.wait()
            waiting.cancel()
            got = await asyncio.gather(waiting, return_exceptions=True)
            self.seen.append(type(got[0]).__name__)
            await stop()
            return await then()

        self.agent = agent

    async def send(self, *values: int) -> None:
        async with nl.Runtime(cast("Any", self.store)) as rt:
            run = await rt.start(self.agent, id="run")
            for value in values:
                await run.signal("s", value)

    def live_twice(self, *values: int) -> Any:
        async def main() -> Any:
            await self.send(*values)
            store = cast("Any", self.store)
            await first_life(self.stage, store, self.agent)
            return await second_life(store, self.agent)

        return run_async(main)


async def receive() -> int:
    return await nl.receive("s", type=int, timeout=5)


async def receive_two() -> list[int]:
    return [await receive(), await receive()]


def test_a_signal_that_is_taken_while_receive_is_cancelled_stays_for_the_next(ground: Path) -> None:
    store = open_at(ground)
    try:
        hasty = Hasty(store, "receive:s", receive, receive_two)
        assert hasty.live_twice(1, 2) == [1, 2]  # in the order in which they were sent
        assert hasty.seen == ["CancelledError", "CancelledError"]
        assert store.verify() == []
    finally:
        store.close()


def test_a_signal_that_was_given_back_is_received_once_over_several_lives() -> None:
    async def nothing_more() -> list[Any]:
        got: list[int | None] = [await nl.receive("s", type=int, timeout=5)]
        try:
            got.append(await nl.receive("s", type=int, timeout=0.01))
        except nl.TimedOut:
            got.append(None)
        return got

    hasty = Hasty(QuickStore(), "receive:s", receive, nothing_more)
    assert hasty.live_twice(7) == [7, None]


def test_a_signal_that_was_given_back_goes_over_into_the_next_turn() -> None:
    store = Overheard(QuickStore(), outcome_of("receive:s"))

    @nl.agent(name="turning")
    async def agent(turn: int) -> Any:
        if turn:
            return await receive()
        store.loop = asyncio.get_running_loop()
        waiting = asyncio.ensure_future(receive())
        await store.written.wait()
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        return nl.next_turn(1)

    async def main() -> None:
        async with nl.Runtime(cast("Any", store)) as rt:
            run = await rt.start(agent, 0, id="run")
            await run.signal("s", 9)
            assert await rt.run(agent, 0, id="run") == 9

    run_async(main)


def test_a_life_that_dies_before_it_can_give_a_signal_back_leaves_that_to_the_next() -> None:
    """The journal says that it was taken; what cancels the code was recorded before."""
    store, stage, got = QuickStore(), Stage(), list[Any]()

    @nl.action(name="quick")
    async def quick() -> int:
        return 1

    @nl.agent(name="cut")
    async def agent() -> list[int]:
        message = asyncio.ensure_future(nl.receive("s", type=int))
        await quick()
        if stage.is_second:  # the first life died here: before it had cancelled, after the signal was taken
            message.cancel()
            got.extend(await asyncio.gather(message, return_exceptions=True))
        else:
            await message
            await stage.stop_here()
        return [await nl.receive("s", type=int, timeout=5)]

    async def main() -> Any:
        async with nl.Runtime(store) as rt:
            await (await rt.start(agent, id="run")).signal("s", 5)
        await first_life(stage, store, agent)
        return await second_life(store, agent)

    assert run_async(main) == [5]
    assert [type(one) for one in got] == [asyncio.CancelledError]


@pytest.mark.parametrize("name", ["sleep", "child.result"])
def test_a_wait_that_is_cancelled_when_its_outcome_is_written_is_cancelled_on_replay(name: str) -> None:
    @nl.agent(name="child")
    async def child() -> int:
        return 3

    async def wait() -> Any:
        if name == "sleep":
            return await nl.sleep(0.001)
        return await (await nl.spawn(child, id="c")).result()

    async def then() -> str:
        return "went on"

    what = "result:c" if name == "child.result" else "sleep"
    hasty = Hasty(QuickStore(), what, wait, then)
    assert hasty.live_twice() == "went on"
    assert hasty.seen == ["CancelledError", "CancelledError"]


def test_a_step_that_is_cancelled_when_its_outcome_is_written_is_cancelled_on_replay() -> None:
    @nl.action(name="work")
    async def work() -> int:
        return 3

    async def then() -> str:
        return "went on"

    hasty = Hasty(QuickStore(), "work", work, then)
    assert hasty.live_twice() == "went on"
    assert hasty.seen == ["CancelledError", "CancelledError"]


@pytest.mark.parametrize("wait", ["sleep", "receive"])
def test_a_foreign_timer_over_a_wait_raises_the_same_error_on_replay(wait: str) -> None:
    stage, seen = Stage(), list[str]()

    @nl.action(name="stop")
    async def stop() -> None:
        await stage.stop_here()

    @nl.agent(name="limited")
    async def agent() -> None:
        try:
            async with asyncio.timeout(0.05):
                await (nl.sleep(0.2) if wait == "sleep" else nl.receive("never"))
        except Exception as error:
            seen.append(type(error).__name__)
        await nl.sleep(0.2)  # by now the time of the first has come
        await stop()

    twice(stage, agent)
    assert len(seen) >= 2
    assert set(seen) == {"UsageError"}


class Slow(QuickStore):
    """A store that commits the outcome of the step `write` only when it may."""

    def __init__(self) -> None:
        super().__init__()
        self.go = threading.Event()

    def commit(self, commits: Sequence[Commit]) -> Any:
        """Commit, when it may."""
        if any(outcome_of("write")(one) for one in commits):
            self.go.wait(20)
        return super().commit(commits)


def test_an_effect_that_is_cancelled_before_it_is_durable_holds_up_no_decision() -> None:
    store, may_cancel = Slow(), asyncio.Event()

    @nl.action(name="write")
    async def write() -> None: ...

    @nl.decision(name="decide")
    async def decide() -> int:
        return 7

    @nl.agent(name="hasty-pipelined", durability="pipelined")
    async def agent() -> int:
        writing = asyncio.create_task(write())
        deciding = asyncio.create_task(decide())
        await may_cancel.wait()
        writing.cancel()
        await asyncio.wait({writing})
        value = await deciding
        store.go.set()
        return value

    async def main() -> int:
        async with asyncio.timeout(10), nl.Runtime(store) as rt:
            running = asyncio.create_task(rt.run(agent, id="r"))
            executions = rt._executor.executions
            while "r" not in executions or len(executions["r"].delivery.slots) < 2:  # noqa: ASYNC110
                await asyncio.sleep(0.001)  # until both wait for their delivery, in this order
            for _ in range(20):
                await asyncio.sleep(0.001)  # and the run is at rest
            may_cancel.set()
            return int(await running)

    try:
        assert run_async(main) == 7
    finally:
        store.go.set()
