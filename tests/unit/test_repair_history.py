"""Histories repaired from the journal, and the same way on replay."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import ninelives as nl
from ninelives.core.journal.chat_history import UNKNOWN
from ninelives.engine.agent.chat_history import STARTED
from tests.replay.lifetimes import QuickStore, Stage, first_life, once, run_async, second_life
from tests.unit.test_children import until


@nl.action(name="history-look")
async def look(what: str, much: bool = False) -> dict[str, str]:
    return {"seen": what}


@nl.action(name="history-fails")
async def fails(what: str) -> str:
    raise nl.Permanent(f"no {what}")


def call(id: str, name: str, arguments: str) -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    return {"role": "assistant", "tool_calls": [{"id": id, "type": "function", "function": function}]}


def contents(messages: list[dict[str, Any]]) -> list[str]:
    return [message["content"] for message in messages if message["role"] == "tool"]


def test_a_result_is_found_by_the_tools_name_and_arguments() -> None:
    @nl.agent(name="agent")
    async def agent() -> list[str]:
        await look("a")
        await look("b")
        with suppress(nl.Permanent):
            await fails("x")
        history = [
            call("1", "history-look", '{"what": "b"}'),
            call("2", "history-look", '{"what": "a", "much": false}'),
            call("3", "history-look", '{"what": "never"}'),
            call("4", "history-fails", '{"what": "x"}'),
            call("5", "unheard", "{}"),
            call("6", "history-look", '{"what": "a"}'),
        ]
        return contents(await nl.repair_history(history))

    assert once(agent) == ['{"seen":"b"}', '{"seen":"a"}', UNKNOWN, "Permanent: no x", UNKNOWN, UNKNOWN]


def test_a_call_that_has_its_result_takes_its_record() -> None:
    @nl.agent(name="agent")
    async def agent() -> list[str]:
        await look("a")
        history = [
            call("1", "history-look", '{"what": "a"}'),
            {"role": "tool", "tool_call_id": "1", "content": "seen"},
            call("2", "history-look", '{"what": "a"}'),
        ]
        return contents(await nl.repair_history(history))

    assert once(agent) == ["seen", UNKNOWN]


def test_the_repair_is_the_same_on_replay() -> None:
    stage = Stage()
    seen: list[list[str]] = []

    @nl.action(name="stop")
    async def stop() -> None:
        await stage.stop_here()

    @nl.agent(name="agent")
    async def agent() -> list[str]:
        history = [call("1", "history-look", '{"what": "a"}')]
        repaired = contents(await nl.repair_history(history))
        seen.append(repaired)
        await look("a")
        await stop()
        return repaired

    async def main() -> Any:
        store = QuickStore()
        await first_life(stage, store, agent)
        return await second_life(store, agent)

    assert run_async(main) == [UNKNOWN]
    assert seen == [[UNKNOWN], [UNKNOWN]]


def test_a_dead_runs_calls_are_found_by_the_next_run_of_the_session() -> None:
    stage = Stage()

    @nl.action(name="slow")
    async def slow(what: str) -> None:
        await stage.stop_here()

    @nl.agent(name="first")
    async def first() -> None:
        await look("a")
        await slow("b")

    @nl.agent(name="second")
    async def second() -> list[str]:
        history = [call("1", "history-look", '{"what": "a"}'), call("2", "slow", '{"what": "b"}')]
        return contents(await nl.repair_history(history, run="first"))

    async def main() -> Any:
        store = QuickStore()
        stage.reached = asyncio.Event()
        async with nl.Runtime(store) as rt:
            await rt.start(first, id="first")
            working = asyncio.create_task(rt.work())
            await stage.reached.wait()
            await until(lambda: any(one.kind == "intent" for one in store.load_journal("first").records))
            result = await rt.run(second, id="second")
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)
            return result

    assert run_async(main) == ['{"seen":"a"}', STARTED]


def test_a_step_that_was_started_twice_has_the_result_that_it_came_to() -> None:
    stage = Stage()

    @nl.action(name="slow")
    async def slow(what: str) -> str:
        stage.did(what)
        if stage.is_second and len(stage.executed) == 1:
            await asyncio.sleep(0.02)  # long enough for a second intent
        await stage.stop_here()
        return what

    @nl.agent(name="agent")
    async def agent() -> list[str]:
        await slow("a")
        return contents(await nl.repair_history([call("1", "slow", '{"what": "a"}')]))

    async def main() -> Any:
        store = QuickStore()
        stage.reached = asyncio.Event()
        async with nl.Runtime(store) as rt:
            await rt.start(agent, id="run")
            working = asyncio.create_task(rt.work())
            await until(lambda: any(one.kind == "intent" for one in store.load_journal("run").records))
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)
        stage.is_second = True
        stage.executed.clear()
        result = await second_life(store, agent)
        assert sum(one.kind == "intent" for one in store.load_journal("run").records) == 2
        return result

    assert run_async(main) == ["a"]


def test_equal_calls_at_once_have_their_own_results() -> None:
    @nl.action(name="slow")
    async def slow(what: str) -> str:
        await asyncio.sleep(0.02)  # each has an intent
        return what

    @nl.agent(name="agent")
    async def agent() -> list[str]:
        await asyncio.gather(slow("a"), slow("a"))
        history = [call(name, "slow", '{"what": "a"}') for name in ("1", "2", "3")]
        return contents(await nl.repair_history(history))

    assert once(agent) == ["a", "a", UNKNOWN]


def test_outside_a_run_nothing_is_looked_up() -> None:
    async def main() -> list[str]:
        return contents(await nl.repair_history([call("1", "history-look", "{}")]))

    assert run_async(main) == [UNKNOWN]
