"""Branches and time: gather, groups, races, bounded fan-out, recorded timeouts, turns, what is drawn."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

import ninelives as nl
from tests.replay.lifetimes import QuickStore, Stage, first_life, once, run_async, second_life, twice


def stop_of(stage: Stage) -> Any:
    """Return the step at which the first life ends."""

    async def body() -> None:
        await stage.stop_here()

    return nl.action(body, name="stop")


@pytest.mark.parametrize("how", ["nl", "asyncio", "group"])
def test_the_first_failure_is_the_same_one_on_replay(how: str) -> None:
    stage, seen = Stage(), []

    @nl.action(name="fail", retry=nl.Retry(attempts=1))
    async def fail(number: int) -> None:
        stage.did(number)
        for _ in range(3 - number):
            await asyncio.sleep(0)
        raise ValueError(f"number {number}")

    async def arm(number: int) -> None:
        await fail(number)

    @nl.agent(name="first-failure")
    async def agent() -> None:
        try:
            if how == "nl":
                await nl.gather(*(arm(number) for number in range(3)))
            elif how == "asyncio":
                await asyncio.gather(*(arm(number) for number in range(3)))
            else:
                async with asyncio.TaskGroup() as group:
                    for number in range(3):
                        group.create_task(arm(number))
        except* ValueError as errors:
            seen.append(str(errors.exceptions[0]))
        await stop_of(stage)()

    twice(stage, agent)
    assert seen[0] == seen[1]
    assert set(stage.executed) <= {0, 1, 2}


def test_gather_gives_results_in_order_and_each_arm_its_own_branch() -> None:
    @nl.action(name="key-of")
    async def key_of(_: int) -> str:
        return nl.key()

    @nl.agent(name="gathering")
    async def agent() -> list[str]:
        return await nl.gather(key_of(1), key_of(2), key_of(3))

    keys = once(agent)
    assert len(set(keys)) == 3


def test_map_is_bounded_and_ordered() -> None:
    running, most = 0, 0

    @nl.action(name="work")
    async def work(number: int) -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.0005)
        running -= 1
        return number * number

    @nl.agent(name="mapping")
    async def agent() -> list[int]:
        return await nl.map(work, range(10), limit=3)

    assert once(agent) == [number * number for number in range(10)]
    assert most == 3


def test_map_without_room_is_refused() -> None:
    @nl.agent(name="no-room")
    async def agent() -> None:
        await nl.map(asyncio.sleep, [1], limit=0)

    with pytest.raises(nl.RunFailed, match="limit=0"):
        once(agent)


def test_a_race_has_the_same_winner_and_the_loser_is_not_executed_again() -> None:
    stage, seen = Stage(), []

    @nl.action(name="runner")
    async def runner(name: str) -> str:
        stage.did(name)
        if name == "slow":
            await asyncio.Event().wait()
        return name

    async def arm(name: str) -> str:
        return await runner(name)

    @nl.agent(name="racing")
    async def agent() -> None:
        tasks = [asyncio.create_task(arm(name)) for name in ("slow", "quick")]
        done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)
        seen.append([task.result() for task in done])
        await stop_of(stage)()

    twice(stage, agent)
    assert seen == [["quick"], ["quick"]]
    assert stage.executed == []


@pytest.mark.parametrize("fires", [True, False])
def test_a_timeout_ends_the_same_way_on_replay(fires: bool) -> None:
    stage, seen = Stage(), []

    @nl.action(name="slow")
    async def slow() -> str:
        stage.did("slow")
        if fires:
            await asyncio.Event().wait()
        return "in time"

    @nl.agent(name="limited")
    async def agent() -> None:
        try:
            async with nl.timeout(0.002 if fires else 30):
                seen.append(await slow())
        except TimeoutError as error:
            assert type(error) is nl.TimedOut  # noqa: PT017 (which of the two is the point)
            seen.append("too late")
        await stop_of(stage)()

    twice(stage, agent)
    assert seen == (["too late"] * 2 if fires else ["in time"] * 2)
    assert stage.executed == []


def test_nested_timeouts_say_which_one_fired() -> None:
    @nl.action(name="hang")
    async def hang() -> None:
        await asyncio.Event().wait()

    @nl.agent(name="nested-limits")
    async def agent() -> str:
        try:
            async with nl.timeout(30):
                try:
                    async with nl.timeout(0.002):
                        await hang()
                except nl.TimedOut:
                    return "inner"
        except nl.TimedOut:
            return "outer"
        return "none"

    assert once(agent) == "inner"


def test_time_and_randomness_are_the_same_on_replay() -> None:
    stage = Stage()
    seen: list[list[Any]] = []

    @nl.agent(name="drawing")
    async def agent() -> None:
        drawn = [nl.now(), nl.now(), nl.uuid(), nl.uuid(), nl.random(), nl.random()]
        seen.append(drawn)
        await stop_of(stage)()

    twice(stage, agent)
    assert seen[0] == seen[1]
    now, _, first, second, one, other = seen[0]
    assert now.utcoffset() is not None
    assert first != second
    assert first.version == 4
    assert one != other
    assert 0 <= one < 1


def test_two_runs_draw_differently() -> None:
    @nl.agent(name="drawing-one")
    async def agent() -> str:
        return str(nl.uuid())

    store = QuickStore()
    assert once(agent, store=store, id="a") != once(agent, store=store, id="b")


def test_a_log_line_is_handed_on_once_and_silent_on_replay(caplog: pytest.LogCaptureFixture) -> None:
    stage, store = Stage(), QuickStore()

    @nl.agent(name="logging")
    async def agent() -> None:
        nl.log.info("before")
        nl.log.warning("twice")
        nl.log.warning("twice")
        await stop_of(stage)()
        nl.log.error("after")

    with caplog.at_level(logging.DEBUG, logger="ninelives.run"):
        twice(stage, agent, store=store)
    lines = [(one.levelname, one.getMessage()) for one in caplog.records if one.name == "ninelives.run"]
    assert lines == [("INFO", "before"), ("WARNING", "twice"), ("WARNING", "twice"), ("ERROR", "after")]
    kept = [one for one in store.load_journal("run").records if one.kind.value == "log"]
    assert len(kept) == 4


def test_progress_is_in_the_checkpoint() -> None:
    stage, store = Stage(), QuickStore()

    @nl.agent(name="telling")
    async def agent() -> None:
        nl.progress(2, of=5, note="half-way")
        await stop_of(stage)()

    async def main() -> None:
        await first_life(stage, store, agent)
        async with nl.Runtime(store) as rt:
            point = await (await rt.get("run")).checkpoint()
            assert point.progress == "step 2 of 5: half-way"
            assert point.agent == "telling"

    run_async(main)


def test_next_turn_starts_with_an_empty_journal_and_keeps_its_arguments() -> None:
    stage, store = Stage(), QuickStore()

    @nl.action(name="count")
    async def count(number: int) -> int:
        return int(stage.did(number + 1))

    @nl.agent(name="turning")
    async def agent(number: int, name: str = "x") -> str:
        number = await count(number)
        if number == 2:
            await stop_of(stage)()
        again: str = nl.next_turn(number, name=name + "y") if number < 4 else f"{number}{name}"
        return again

    async def main() -> None:
        await first_life(stage, store, agent, 0)
        row = store.read_run("run")
        assert row is not None
        assert row.turn == 1
        kinds = [one.kind.value for one in store.load_journal("run").records if one.kind.value != "intent"]
        assert kinds == ["turn", "result"]
        assert await second_life(store, agent, 0) == "4xyyy"
        assert stage.executed == [3, 4]
        whole = store.load_journal("run", since=0)
        assert [one.kind.value for one in whole.records].count("turn") == 3
        assert store.verify() == []

    run_async(main)


def test_next_turn_with_open_branches_is_refused() -> None:
    @nl.action(name="hang")
    async def hang() -> None:
        await asyncio.Event().wait()

    async def arm() -> None:
        await hang()

    @nl.agent(name="untidy")
    async def agent() -> Any:
        task = asyncio.create_task(arm())
        await asyncio.sleep(0)
        try:
            return nl.next_turn()
        finally:
            task.cancel()

    with pytest.raises(nl.RunFailed, match="other branches of the run are open"):
        once(agent)


def test_what_is_left_open_at_the_end_is_withdrawn() -> None:
    store = QuickStore()

    @nl.action(name="hang")
    async def hang() -> None:
        await asyncio.Event().wait()

    @nl.action(name="work")
    async def work() -> None:
        await asyncio.sleep(0)

    async def arm() -> None:
        await hang()

    @nl.agent(name="leaving")
    async def agent() -> str:
        task = asyncio.create_task(arm())
        await work()
        return f"left {task.done()}"

    assert once(agent, store=store, id="r") == "left False"
    assert "withdrawn" in [one.kind.value for one in store.load_journal("r").records]
