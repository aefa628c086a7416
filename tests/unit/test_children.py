"""Children: created once, waited for, cancelled with their parent; the same on replay."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

import pytest

import ninelives as nl
from ninelives.core.model.run import Control, Kind, RunQuery, RunRow, State
from tests.replay.lifetimes import QuickStore, Stage, first_life, run_async

T = TypeVar("T")


class World:
    """What was done, what fails, and what is held up."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.failing: set[str] = set()
        self.gate: asyncio.Event | None = None


WORLD = World()


@pytest.fixture(autouse=True)
def _fresh_world() -> None:
    WORLD.__init__()  # type: ignore[misc]


@nl.action(name="do")
async def do(what: str) -> str:
    WORLD.done.append(what)
    if what in WORLD.failing:
        raise nl.Permanent(f"no {what}")
    if what == "wait" and WORLD.gate is not None:
        await WORLD.gate.wait()
    return what


@nl.agent(name="helper")
async def helper(what: str) -> set[str]:
    return {await do(what)}


async def finish(store: QuickStore, run: str = "run") -> Any:
    """Work on everything until a run has ended; returns its result."""
    async with nl.Runtime(store) as rt:
        working = asyncio.create_task(rt.work())
        try:
            return await (await rt.get(run)).result()
        finally:
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)


async def until(condition: Callable[[], T | None]) -> T:
    """Wait until a condition gives something."""
    while not (found := condition()):  # noqa: ASYNC110 (what is waited for is in a store)
        await asyncio.sleep(0.005)
    return found


def parked(store: QuickStore) -> RunRow | None:
    row = store.read_run("run")
    return row if row is not None and row.state is State.CHECKPOINTED else None


async def start(store: QuickStore, agent: Any, *args: Any) -> None:
    async with nl.Runtime(store) as rt:
        await rt.start(agent, *args, id="run")


def live(agent: Any, *args: Any, store: QuickStore | None = None) -> tuple[Any, QuickStore]:
    """Start a run and work until it has ended."""
    kept = store or QuickStore()

    async def main() -> Any:
        await start(kept, agent, *args)
        return await finish(kept)

    return run_async(main), kept


def test_a_childs_result_comes_back_as_its_own_type() -> None:
    @nl.agent(name="parent")
    async def parent() -> bool:
        child = await nl.spawn(helper, "a")
        return bool(await child.result() == {"a"})

    result, store = live(parent)
    assert result is True
    child = store.read_run("run/helper-1")
    assert child is not None
    assert (child.parent, child.state) == ("run", State.COMPLETED)


def test_the_parent_parks_while_it_waits_and_says_for_what() -> None:
    async def main() -> None:
        store = QuickStore()
        WORLD.gate = asyncio.Event()

        @nl.agent(name="parent")
        async def parent() -> Any:
            return await (await nl.spawn(helper, "wait", id="slow")).result()

        await start(store, parent)
        working = asyncio.create_task(finish(store))
        row = await until(lambda: parked(store))
        assert row.waits == "for the child 'slow'"
        WORLD.gate.set()
        assert await working == {"wait"}

    run_async(main)


def test_a_childs_failure_is_raised_and_is_the_same_on_replay() -> None:
    stage = Stage()

    @nl.action(name="stop")
    async def stop(seen: str) -> None:
        await stage.stop_here()

    @nl.agent(name="parent")
    async def parent() -> list[str]:
        child = await nl.spawn(helper, "bad")
        try:
            await child.result()
        except nl.RunFailed as error:
            await stop(str(error))
            return [str(error), type(error).__name__]
        return []

    async def main() -> Any:
        store = QuickStore()
        WORLD.failing = {"bad"}
        await first_life(stage, store, parent)
        return await finish(store)

    said, name = run_async(main)
    assert "the child failed: Permanent: no bad" in said
    assert name == "RunFailed"
    assert WORLD.done == ["bad"]


def test_a_parent_that_comes_back_spawns_nothing_twice() -> None:
    stage = Stage()

    @nl.action(name="stop")
    async def stop() -> None:
        await stage.stop_here()

    @nl.agent(name="parent")
    async def parent() -> list[Any]:
        children = [await nl.spawn(helper, what) for what in "ab"]
        await stop()
        return [await child.result() for child in children]

    async def main() -> tuple[Any, QuickStore]:
        store = QuickStore()
        await first_life(stage, store, parent)
        return await finish(store), store

    result, store = run_async(main)
    assert result == [{"a"}, {"b"}]
    born = sorted(run.id for run in store.list_runs(RunQuery(parent="run")))
    assert born == ["run/helper-1", "run/helper-2"]
    assert sorted(WORLD.done) == ["a", "b"]


def test_a_thousand_children_spawned_at_once() -> None:
    @nl.agent(name="quick")
    async def quick(number: int) -> int:
        return number

    @nl.agent(name="many")
    async def many(count: int) -> int:
        children = await nl.map(lambda number: nl.spawn(quick, number), range(count), limit=count)
        results = await nl.map(lambda child: child.result(), children, limit=count)
        return sum(results)

    result, store = live(many, 1000)
    assert result == 499_500
    assert len(store.list_runs(RunQuery(parent="run", limit=5000))) == 1000


@pytest.mark.parametrize("how", ["fail", "cancel"])
def test_children_are_cancelled_with_their_parent(how: str) -> None:
    async def main() -> tuple[State, State]:
        store = QuickStore()
        WORLD.gate = asyncio.Event()

        @nl.agent(name="parent")
        async def parent() -> None:
            child = await nl.spawn(helper, "wait", id="child")
            if how == "fail":
                while not WORLD.done:
                    await nl.sleep(0.01)
                raise ValueError("over")
            await child.result()

        await start(store, parent)
        working = asyncio.create_task(finish(store))
        if how == "cancel":
            await until(lambda: WORLD.done)
            store.control_run("run", Control.CANCEL)
        with pytest.raises(nl.RunError):
            await working
        with pytest.raises(nl.RunCancelled):
            await finish(store, "child")
        return store.read_run("run").state, store.read_run("child").state  # type: ignore[union-attr]

    ended = State.FAILED if how == "fail" else State.CANCELLED
    assert run_async(main) == (ended, State.CANCELLED)


def test_a_child_can_be_cancelled_by_its_parent() -> None:
    @nl.agent(name="parent")
    async def parent() -> str:
        child = await nl.spawn(helper, "wait")
        await child.cancel()
        await child.cancel()
        try:
            await child.result()
        except nl.RunCancelled:
            return "cancelled"
        return "?"

    async def main() -> Any:
        WORLD.gate = asyncio.Event()
        store = QuickStore()
        await start(store, parent)
        return await finish(store)

    assert run_async(main) == "cancelled"


def test_a_child_is_passed_to_the_next_turn() -> None:
    @nl.agent(name="parent")
    async def parent(child: nl.Child | None = None) -> Any:
        if child is None:
            return nl.next_turn(await nl.spawn(helper, "a"))
        return await child.result()

    assert live(parent)[0] == {"a"}


def test_an_id_of_another_run_is_refused() -> None:
    @nl.agent(name="parent")
    async def parent() -> str:
        try:
            await nl.spawn(helper, "a", id="taken")
        except nl.IdConflict as error:
            return str(error)
        return "?"

    async def main() -> Any:
        store = QuickStore()
        async with nl.Runtime(store) as rt:
            await rt.start(helper, "a", id="taken")
        await start(store, parent)
        return await finish(store)

    assert "no child of this one" in run_async(main)


def test_other_arguments_on_replay_are_a_divergence() -> None:
    stage = Stage()
    what = "a"

    @nl.action(name="stop")
    async def stop() -> None:
        await stage.stop_here()

    @nl.agent(name="parent")
    async def parent() -> None:
        await nl.spawn(helper, what)
        await stop()

    async def main() -> None:
        nonlocal what
        store = QuickStore()
        await first_life(stage, store, parent)
        what = "b"
        with pytest.raises(nl.RunEscalated, match="other arguments"):
            await finish(store)

    run_async(main)


@pytest.mark.parametrize("bad", ["unknown", object()])
def test_what_cannot_be_spawned_is_refused_before_anything(bad: Any) -> None:
    @nl.agent(name="parent")
    async def parent() -> None:
        await nl.spawn(*(["nobody"] if bad == "unknown" else [helper, bad]))

    with pytest.raises(nl.RunFailed):
        live(parent)


def test_a_step_spawns_nothing() -> None:
    @nl.action(name="inner")
    async def inner() -> None:
        await nl.spawn(helper, "a")

    @nl.agent(name="parent")
    async def parent() -> None:
        await inner()

    with pytest.raises(nl.RunFailed, match="not for a step"):
        live(parent)


def test_a_retried_parent_retries_the_child_that_failed_it() -> None:
    @nl.agent(name="two")
    async def two() -> str:
        return await do("first") + await do("second")

    @nl.agent(name="parent")
    async def parent() -> Any:
        return await (await nl.spawn(two, id="child")).result()

    async def main() -> tuple[Any, QuickStore]:
        store = QuickStore()
        WORLD.failing = {"second"}
        await start(store, parent)
        with pytest.raises(nl.RunFailed):
            await finish(store)
        WORLD.failing = set()
        async with nl.Runtime(store) as rt:
            await (await rt.get("run")).retry()
        return await finish(store), store

    result, store = run_async(main)
    assert result == "firstsecond"
    assert WORLD.done == ["first", "second", "second"]
    assert len(store.list_runs(RunQuery(parent="run"))) == 1


def test_a_retried_parent_spawns_anew_what_was_cancelled_with_it() -> None:
    @nl.agent(name="parent")
    async def parent() -> Any:
        slow = await nl.spawn(helper, "wait")
        await do("risky")
        return await slow.result()

    async def main() -> tuple[Any, QuickStore]:
        store = QuickStore()
        WORLD.gate, WORLD.failing = asyncio.Event(), {"risky"}
        await start(store, parent)
        with pytest.raises(nl.RunFailed):
            await finish(store)
        WORLD.gate.set()
        WORLD.failing = set()
        async with nl.Runtime(store) as rt:
            await (await rt.get("run")).retry()
        return await finish(store), store

    result, store = run_async(main)
    assert result == {"wait"}
    states = {run.id: run.state for run in store.list_runs(RunQuery(parent="run"))}
    assert states["run/helper-1~2"] is State.COMPLETED
    assert states["run/helper-1"].is_final
    kinds = [record.kind for record in store.load_journal("run").records]
    assert kinds.count(Kind.SUPERSEDED) == 1


def test_a_script_works_on_the_children_of_its_run() -> None:
    @nl.agent(name="parent")
    async def parent(depth: int) -> int:
        if depth == 0:
            return 1
        children = [await nl.spawn(parent, depth - 1) for _ in range(2)]
        results: list[int] = [await child.result() for child in children]
        return 1 + sum(results)

    async def main() -> Any:
        store = QuickStore()
        async with nl.Runtime(store) as rt:
            await rt.start(helper, "stranger", id="stranger")
            result = await rt.run(parent, 3, id="run")
        stranger = store.read_run("stranger")
        assert stranger is not None
        assert stranger.state is State.PENDING
        return result

    assert run_async(main) == 15


def test_a_plain_agent_spawns_and_waits() -> None:
    @nl.agent(name="plain")
    def plain() -> list[Any]:
        children = [nl.sync.spawn(helper, what) for what in "ab"]
        stopped = nl.sync.spawn(helper, "wait", id="stopped")
        stopped.cancel()
        return [child.result() for child in children]

    assert live(plain)[0] == [{"a"}, {"b"}]
