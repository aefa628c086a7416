"""A failed run is retried: it goes on from the step that failed, and nothing recorded is done again."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import ninelives as nl
from ninelives.core.journal.replay import Replay, read_superseded
from ninelives.core.journal.retry_scope import fatal_steps
from ninelives.core.model.run import Control, Kind, RunQuery, State
from tests.replay.lifetimes import QuickStore, run_async


class World:
    """What the bodies do, and which of them fail."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.failing: set[str] = set()

    def do(self, what: str) -> str:
        self.done.append(what)
        if what in self.failing:
            raise nl.Permanent(f"no {what}")
        return what


WORLD = World()


@pytest.fixture(autouse=True)
def _fresh_world() -> None:
    WORLD.__init__()  # type: ignore[misc]


@nl.action(name="do")
async def do(what: str) -> str:
    return WORLD.do(what)


async def attempts(agent: Any, *, failing: set[str]) -> tuple[Any, QuickStore]:
    """Run an agent that fails, mend the world, retry it; returns the result."""
    store = QuickStore()
    WORLD.failing = failing
    async with nl.Runtime(store) as rt:
        with pytest.raises(nl.RunFailed):
            await rt.run(agent, id="run")
        WORLD.failing = set()
        WORLD.done.append("|")
        run = await rt.get("run")
        await run.retry()
        assert await run.status() is State.CHECKPOINTED
        await run.retry()  # asking again changes nothing
        return await rt.run(agent, id="run"), store


def test_a_retried_run_goes_on_from_its_failed_step() -> None:
    @nl.agent(name="three")
    async def three() -> list[str]:
        return [await do("a"), await do("b"), await do("c")]

    result, store = run_async(lambda: attempts(three, failing={"b"}))
    assert result == ["a", "b", "c"]
    assert WORLD.done == ["a", "b", "|", "b", "c"]
    kinds = [record.kind for record in store.load_journal("run", since=0).records]
    assert kinds.count(Kind.END) == 2
    assert kinds.count(Kind.SUPERSEDED) == 1


def test_what_the_code_caught_is_not_done_again() -> None:
    @nl.agent(name="catcher")
    async def catcher() -> list[str]:
        out = []
        for what in ("a", "b", "c"):
            try:
                out.append(await do(what))
            except nl.Permanent:
                out.append("caught")
        return [*out, await do("d")]

    result, _ = run_async(lambda: attempts(catcher, failing={"b", "d"}))
    assert result == ["a", "caught", "c", "d"]
    assert WORLD.done == ["a", "b", "c", "d", "|", "d"]


def test_a_branch_that_failed_and_those_cancelled_with_it_run_anew() -> None:
    async def arm(what: str) -> str:
        return await do(what) + await do(what + what)

    @nl.agent(name="arms")
    async def arms() -> list[str]:
        return await nl.gather(arm("a"), arm("b"), arm("c"))

    result, _ = run_async(lambda: attempts(arms, failing={"bb"}))
    assert result == ["aaa", "bbb", "ccc"]
    before, after = WORLD.done[: WORLD.done.index("|")], WORLD.done[WORLD.done.index("|") + 1 :]
    assert "bb" in after
    assert not set(after) & ({"a", "b", "c"} & set(before))


def test_a_timeout_that_ended_the_run_is_given_another_chance() -> None:
    held = True

    @nl.action(name="slow")
    async def slow() -> str:
        if held:
            await asyncio.Event().wait()
        return "slow"

    @nl.agent(name="timed")
    async def timed() -> str:
        async with nl.timeout(0.05):
            return await slow()

    async def main() -> Any:
        nonlocal held
        async with nl.Runtime(QuickStore()) as rt:
            with pytest.raises(nl.RunFailed):
                await rt.run(timed, id="run")
            held = False
            await (await rt.get("run")).retry()
            return await rt.run(timed, id="run")

    assert run_async(main) == "slow"


def test_a_run_that_fails_again_can_be_retried_again() -> None:
    @nl.agent(name="stubborn")
    async def stubborn() -> str:
        return await do("a") + await do("b")

    async def main() -> Any:
        WORLD.failing = {"b"}
        async with nl.Runtime(QuickStore()) as rt:
            run = await rt.start(stubborn, id="run")
            for _ in range(3):
                with pytest.raises(nl.RunFailed):
                    await rt.run(stubborn, id="run")
                await run.retry()
            WORLD.failing = set()
            return await rt.run(stubborn, id="run")

    assert run_async(main) == "ab"
    assert WORLD.done == ["a", "b", "b", "b", "b"]


def test_the_journal_says_what_was_superseded_and_deletes_nothing() -> None:
    @nl.agent(name="plain")
    async def plain() -> str:
        return await do("a") + await do("b")

    _, store = run_async(lambda: attempts(plain, failing={"b"}))
    records = store.load_journal("run").records
    (superseding,) = [record for record in records if record.kind is Kind.SUPERSEDED]
    assert read_superseded(superseding) == ("#do#1",)
    assert [record.kind for record in records if record.step == "#do#1"] == [Kind.FAILURE, Kind.RESULT]
    replay = Replay(records[: superseding.seq + 1])
    assert replay.take("#do#1") is None
    assert replay.take("#do#0") is not None


def test_the_end_of_a_run_without_a_failed_step_supersedes_nothing() -> None:
    broken = True

    @nl.agent(name="mended")
    async def mended() -> str:
        done = await do("a")
        if broken:
            raise ValueError("a bug")
        return done

    async def main() -> Any:
        nonlocal broken
        store = QuickStore()
        async with nl.Runtime(store) as rt:
            with pytest.raises(nl.RunFailed):
                await rt.run(mended, id="run")
            assert fatal_steps(store.load_journal("run").records) == ()
            broken = False  # as a deploy would
            await (await rt.get("run")).retry()
            return await rt.run(mended, id="run")

    assert run_async(main) == "a"
    assert WORLD.done == ["a"]


@pytest.mark.parametrize("cancel", [False, True])
def test_a_run_that_completed_or_was_cancelled_is_not_retried(cancel: bool) -> None:
    @nl.agent(name="fine")
    async def fine() -> str:
        return await do("a")

    async def main() -> None:
        store = QuickStore()
        async with nl.Runtime(store) as rt:
            run = await rt.start(fine, id="run")
            if cancel:
                store.control_run("run", Control.CANCEL)
            else:
                await rt.run(fine, id="run")
            with pytest.raises(nl.RunFinished):
                await run.retry()
            with pytest.raises(nl.UnknownRun):
                await nl.Run(rt, "nobody").retry()

    run_async(main)


def test_what_a_second_try_has_done_is_not_done_again_though_a_later_step_fails_alike() -> None:
    """The first failure was dropped by the first retry: that the last one says the same is no reason."""

    @nl.action(name="alike")
    async def alike(what: str) -> str:
        WORLD.done.append(what)
        if what in WORLD.failing:
            raise nl.Permanent("connection refused")
        return what

    @nl.agent(name="alike")
    async def agent() -> list[str]:
        return [await alike("a"), await alike("b")]

    async def main() -> Any:
        async with nl.Runtime(QuickStore()) as rt:
            run = await rt.start(agent, id="run")
            for failing in ("a", "b"):
                WORLD.failing = {failing}
                with pytest.raises(nl.RunFailed):
                    await rt.run(agent, id="run")
                await run.retry()
            WORLD.failing = set()
            return await rt.run(agent, id="run")

    assert run_async(main) == ["a", "b"]
    assert WORLD.done == ["a", "a", "b", "b"]


def test_a_child_that_was_spawned_again_is_not_spawned_a_third_time() -> None:
    @nl.agent(name="third.child")
    async def child() -> str:
        return await do("child")

    @nl.agent(name="third")
    async def third() -> list[str]:
        spawned = await nl.spawn(child)
        await do("a")
        out = await spawned.result()
        return [out, await do("b")]

    store = QuickStore()

    async def main() -> Any:
        async with nl.Runtime(store) as rt:
            run = await rt.start(third, id="run")
            for failing in ("a", "b"):
                WORLD.failing = {failing}
                with pytest.raises(nl.RunFailed):
                    await rt.run(third, id="run")
                await run.retry()
            WORLD.failing = set()
            return await rt.run(third, id="run")

    assert run_async(main) == ["child", "b"]
    assert [one for one in WORLD.done if one != "child"] == ["a", "a", "b", "b"]
    # The first child may have acted before it was cancelled with its parent; it was started again once.
    assert len(store.list_runs(RunQuery(parent="run"))) == 2
