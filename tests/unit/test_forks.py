"""Forks: a run that shares another's past, with one result edited; then it is on its own."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import ninelives as nl
from ninelives.core.model.run import Kind, State
from tests.replay.lifetimes import QuickStore, Stage, run_async
from tests.unit.test_children import finish, start, until

DONE: list[str] = []


@pytest.fixture(autouse=True)
def _nothing_done() -> None:
    DONE.clear()


@nl.action(name="do")
async def do(what: str) -> str:
    DONE.append(what)
    return what


@nl.agent(name="fork-three")
async def three() -> list[str]:
    return [await do("a"), await do("b"), await do("c")]


async def made(store: QuickStore, agent: Any, *args: Any) -> None:
    await start(store, agent, *args)
    await finish(store)
    DONE.append("|")


def forked(agent: Any, at: str | int, **options: Any) -> tuple[Any, QuickStore]:
    """Run an agent to its end, fork it, and run the fork; returns the fork's result."""
    store = QuickStore()

    async def main() -> Any:
        await made(store, agent)
        async with nl.Runtime(store) as rt:
            fork = await (await rt.get("run")).fork(at, **{"id": "fork", **options})
            assert fork.id == options.get("id", "fork")
        return await finish(store, "fork")

    return run_async(main), store


def test_a_fork_goes_on_from_an_edited_result() -> None:
    result, store = forked(three, "do[1]", result="B")
    assert result == ["a", "B", "c"]
    assert DONE == ["a", "b", "c", "|", "c"]
    assert store.verify() == []
    origin = store.read_run("run")
    assert origin is not None
    assert origin.state is State.COMPLETED


def test_a_fork_without_a_result_does_the_step_anew() -> None:
    result, _ = forked(three, "do[1]")
    assert result == ["a", "b", "c"]
    assert DONE == ["a", "b", "c", "|", "b", "c"]


def test_a_step_is_named_by_its_number_in_the_history_too() -> None:
    assert forked(three, 1, result="A")[0] == ["A", "b", "c"]


def test_forking_again_under_the_same_id_gives_the_same_fork() -> None:
    async def main() -> list[str]:
        store = QuickStore()
        await made(store, three)
        async with nl.Runtime(store) as rt:
            run = await rt.get("run")
            first = await run.fork("do[1]", result="B", id="fork")
            again = await run.fork("do[1]", result="B", id="fork")
            with pytest.raises(nl.IdConflict):
                await run.fork("do[1]", result="other", id="fork")
            with pytest.raises(nl.IdConflict):
                await run.fork("do[2]", result="B", id="fork")
            third = await run.fork("do[1]", result="B")
            return [first.id, again.id, third.id[:9]]

    assert run_async(main) == ["fork", "fork", "run/fork-"]


def test_a_fork_of_a_fork_and_randomness_up_to_the_fork() -> None:
    @nl.agent(name="dice")
    async def dice() -> list[Any]:
        out: list[Any] = []
        for number in range(4):
            out.append(nl.random())
            out.append(await do(f"{number} {nl.uuid()}"))
        return out

    async def main() -> list[Any]:
        store = QuickStore()
        await made(store, dice)
        async with nl.Runtime(store) as rt:
            await (await rt.get("run")).fork("do[1]", result="one", id="fork")
        await finish(store, "fork")
        async with nl.Runtime(store) as rt:
            await (await rt.get("fork")).fork("do[2]", result="two", id="second")
        await finish(store, "second")
        async with nl.Runtime(store) as rt:
            return [await (await rt.get(run)).result() for run in ("run", "fork", "second")]

    run, fork, second = run_async(main)
    assert fork[:3] == run[:3]
    assert fork[3] == "one"
    assert fork[4] != run[4]
    assert second[:5] == fork[:5]
    assert second[5] == "two"
    assert second[6] not in (fork[6], run[6])


def test_a_fork_that_comes_back_replays_as_itself() -> None:
    stage = Stage()
    stage.is_second = True
    seen: list[float] = []

    @nl.action(name="stop")
    async def stop(number: float) -> float:
        seen.append(number)
        await stage.stop_here()
        return number

    @nl.agent(name="stopping")
    async def stopping() -> list[Any]:
        return [await do("a"), nl.random(), await do("b"), nl.random(), await stop(nl.random()), nl.random()]

    async def main() -> Any:
        store = QuickStore()
        await made(store, stopping)
        async with nl.Runtime(store) as rt:
            await (await rt.get("run")).fork("do[1]", result="B", id="fork")
            stage.is_second, stage.reached = False, asyncio.Event()
            working = asyncio.create_task(rt.work())
            await stage.reached.wait()
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)
        stage.is_second = True
        return await finish(store, "fork")

    result = run_async(main)
    assert result[2] == "B"
    assert len(seen) == 3
    assert seen[0] != seen[1]
    assert seen[1] == seen[2] == result[4]


def test_an_unknown_step_is_refused_naming_those_there_are() -> None:
    async def main() -> None:
        store = QuickStore()
        await made(store, three)
        async with nl.Runtime(store) as rt:
            run = await rt.get("run")
            with pytest.raises(nl.UsageError, match=r"do\[0\], do\[1\], do\[2\]"):
                await run.fork("nothing")
            with pytest.raises(nl.UsageError, match="3 steps are 'do'"):
                await run.fork("do")
            with pytest.raises(nl.UsageError, match="after="):
                await run.fork("do[0]", after="perhaps")
            with pytest.raises(nl.NotSerializable):
                await run.fork("do[0]", result=object())
            with pytest.raises(nl.NotSerializable):
                await run.fork("do[0]", result=1)

    run_async(main)


def test_the_other_run_keeps_what_it_has_to_undo() -> None:
    @nl.action(name="undo")
    async def undo(what: str) -> None:
        DONE.append(f"undo {what}")

    @nl.agent(name="undoing")
    async def undoing() -> str:
        nl.on_failure(undo, "a")
        await do("a")
        nl.on_failure(undo, "b")
        if await do("b") == "fail":
            raise ValueError("over")
        return "well"

    store = QuickStore()

    async def main() -> None:
        await made(store, undoing)
        async with nl.Runtime(store) as rt:
            await (await rt.get("run")).fork("do[1]", result="fail", id="fork")
        with pytest.raises(nl.RunFailed, match="over"):
            await finish(store, "fork")

    run_async(main)
    assert DONE == ["a", "b", "|"]


def test_a_fork_of_a_later_turn_keeps_its_snapshot_and_large_values() -> None:
    large = ["x" * 1000 for _ in range(500)]

    @nl.action(name="big")
    async def big() -> list[str]:
        DONE.append("big")
        return large

    @nl.agent(name="turns")
    async def turns(messages: list[str], turn: int = 0) -> int:
        if turn < 2:
            return nl.next_turn([*messages, f"turn {turn}"], turn + 1)  # type: ignore[no-any-return]
        return len(await big()) + len(messages) + len(await do("end"))

    async def main() -> Any:
        store = QuickStore()
        await made(store, turns, large)
        async with nl.Runtime(store) as rt:
            await (await rt.get("run")).fork("do[0]", result="longer", id="fork")
        assert store.verify() == []
        kinds = [record.kind for record in store.load_journal("fork").records]
        assert kinds == [Kind.CREATED, Kind.RESULT, Kind.RESULT, Kind.FORKED]
        return await finish(store, "fork")

    assert run_async(main) == 500 + 502 + 6
    assert DONE == ["big", "end", "|"]


def test_what_was_superseded_is_not_copied() -> None:
    broken = True

    @nl.action(name="fragile")
    async def fragile() -> str:
        if broken:
            raise nl.Permanent("broken")
        return await do("mended")

    @nl.agent(name="mending")
    async def mending() -> list[str]:
        return [await fragile(), await do("x")]

    async def main() -> Any:
        nonlocal broken
        store = QuickStore()
        await start(store, mending)
        with pytest.raises(nl.RunFailed):
            await finish(store)
        broken = False
        async with nl.Runtime(store) as rt:
            await (await rt.get("run")).retry()
        await finish(store)
        async with nl.Runtime(store) as rt:
            await (await rt.get("run")).fork("do[0]", result="X", id="fork")
        return await finish(store, "fork")

    assert run_async(main) == ["mended", "X"]


@nl.action(name="fork-pay", resumable=False)
async def pay(cents: int) -> int:
    DONE.append(f"pay {cents}")
    return cents * 10


@nl.agent(name="fork-payer")
async def payer() -> list[Any]:
    return [await do("a"), await pay(5), await do("b")]


@pytest.mark.parametrize("after", ["reuse", "repeat"])
def test_what_must_not_be_repeated_is_taken_over_or_repeated(after: str) -> None:
    result, _ = forked(payer, "do[0]", result="A", after=after)
    assert result == ["A", 50, "b"]
    assert ["a", "pay 5", "b", "|", *(["pay 5"] if after == "repeat" else []), "b"] == DONE


def test_what_must_not_be_repeated_is_found_by_code_that_moved_since_each_once() -> None:
    has_moved = False

    @nl.agent(name="fork-moved")
    async def moving() -> list[Any]:
        first = await do("a")
        if not has_moved:
            return [first, await pay(5), await pay(6)]
        return [first, *[await asyncio.create_task(pay(cents)) for cents in (6, 5, 5)]]

    async def main() -> Any:
        nonlocal has_moved
        store = QuickStore()
        await made(store, moving)
        async with nl.Runtime(store) as rt:
            await (await rt.get("run")).fork("do[0]", result="A", id="fork", after="reuse")
        has_moved = True
        return await finish(store, "fork")

    assert run_async(main) == ["A", 60, 50, 50]
    assert DONE == ["a", "pay 5", "pay 6", "|", "pay 5"]  # only the third is new


@pytest.mark.parametrize("says", ["reuse", "repeat"])
def test_a_person_is_asked_before_it_is_done_again(says: str) -> None:
    async def main() -> Any:
        store = QuickStore()
        await made(store, payer)
        async with nl.Runtime(store) as rt:
            await (await rt.get("run")).fork("do[0]", result="A", id="fork")
            working = asyncio.create_task(finish(store, "fork"))
            await until(store.list_inbox)
            (item,) = await rt.inbox()
            assert "fork-pay" in str(store.list_inbox()[0].body)
            await item.answer(says, by="ada")
        return await working

    assert run_async(main) == ["A", 50, "b"]
    assert ["a", "pay 5", "b", "|", *(["pay 5"] if says == "repeat" else []), "b"] == DONE


def test_a_fork_is_refused_while_something_is_in_doubt() -> None:
    @nl.action(name="doubtful", resumable=False)
    async def doubtful() -> None:
        raise ConnectionError("no reply")

    @nl.agent(name="doubter")
    async def doubter() -> None:
        await do("a")
        await doubtful()

    async def main() -> None:
        store = QuickStore()
        await start(store, doubter)
        with pytest.raises(nl.RunEscalated):
            await finish(store)
        async with nl.Runtime(store) as rt:
            with pytest.raises(nl.UsageError, match="doubt"):
                await (await rt.get("run")).fork("do[0]", result="A")

    run_async(main)


def test_history_names_each_step_as_fork_takes_it() -> None:
    store = QuickStore()

    async def main() -> list[str]:
        await made(store, three)
        async with nl.Runtime(store) as rt:
            run = await rt.get("run")
            places = [entry.place for entry in await run.history() if entry.kind == "result"]
            for place in places:
                await run.fork(at=place, id=f"fork-{place}")
            return places

    assert run_async(main) == ["do[0]", "do[1]", "do[2]"]
