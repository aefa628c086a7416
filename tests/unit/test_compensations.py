"""Undoing: in reverse order, durably, when a run fails or is cancelled; and only then."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import ninelives as nl
from ninelives.core.model.run import Control, Kind, State
from tests.replay.lifetimes import QuickStore, Stage, first_life, run_async
from tests.unit.test_children import finish, start


class World:
    """What was done and undone, which of it fails, and where the first life stops."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.failing: set[str] = set()
        self.stop_at = ""
        self.stage = Stage()


WORLD = World()


@pytest.fixture(autouse=True)
def _fresh_world() -> None:
    WORLD.__init__()  # type: ignore[misc]


async def happen(what: str) -> str:
    if what in WORLD.failing:
        raise nl.Permanent(f"no {what}")
    if what == WORLD.stop_at:
        await WORLD.stage.stop_here()
    WORLD.done.append(what)
    return what


@nl.action(name="book")
async def book(what: str) -> str:
    return await happen(f"book {what}")


@nl.action(name="unbook")
async def unbook(what: str, nights: int = 1) -> str:
    return await happen(f"unbook {what}")


@nl.action(name="plainly")
def plainly(what: str) -> None:
    WORLD.done.append(f"plainly {what}")


@nl.agent(name="trip")
async def trip() -> str:
    for what in ("flight", "hotel", "car"):
        nl.on_failure(unbook, what, nights=2)
        await book(what)
    return "booked"


def live(agent: Any, store: QuickStore) -> Any:
    async def main() -> Any:
        await start(store, agent)
        return await finish(store)

    return run_async(main)


def test_what_was_done_is_undone_in_reverse_when_the_run_fails() -> None:
    WORLD.failing = {"book car"}
    store = QuickStore()
    with pytest.raises(nl.RunFailed, match="no book car"):
        live(trip, store)
    assert WORLD.done == ["book flight", "book hotel", "unbook car", "unbook hotel", "unbook flight"]
    assert store.read_run("run").state is State.FAILED  # type: ignore[union-attr]


def test_nothing_is_undone_when_all_goes_well() -> None:
    assert live(trip, QuickStore()) == "booked"
    assert WORLD.done == ["book flight", "book hotel", "book car"]


def test_a_cancelled_run_is_undone() -> None:
    async def main() -> QuickStore:
        store = QuickStore()
        WORLD.stop_at = "book hotel"
        await first_life(WORLD.stage, store, trip)
        store.control_run("run", Control.CANCEL)
        with pytest.raises(nl.RunCancelled):
            await finish(store)
        return store

    store = run_async(main)
    assert WORLD.done == ["book flight", "unbook hotel", "unbook flight"]
    assert store.read_run("run").state is State.CANCELLED  # type: ignore[union-attr]


def test_a_running_run_that_is_cancelled_is_undone() -> None:
    async def main() -> None:
        store = QuickStore()
        WORLD.stop_at, WORLD.stage.reached = "book hotel", asyncio.Event()
        await start(store, trip)
        working = asyncio.create_task(finish(store))
        await WORLD.stage.reached.wait()
        store.control_run("run", Control.CANCEL)
        with pytest.raises(nl.RunCancelled):
            await working

    run_async(main)
    assert WORLD.done == ["book flight", "unbook hotel", "unbook flight"]


def test_undoing_goes_on_where_it_was_when_we_died() -> None:
    async def main() -> None:
        store = QuickStore()
        WORLD.failing, WORLD.stop_at = {"book car"}, "unbook hotel"
        await first_life(WORLD.stage, store, trip)
        with pytest.raises(nl.RunFailed, match="no book car"):
            await finish(store)

    run_async(main)
    assert WORLD.done == ["book flight", "book hotel", "unbook car", "unbook hotel", "unbook flight"]


def test_a_compensation_that_fails_is_recorded_and_the_others_go_on() -> None:
    WORLD.failing = {"book car", "unbook hotel"}
    store = QuickStore()
    with pytest.raises(nl.RunFailed, match="no book car"):
        live(trip, store)
    assert WORLD.done == ["book flight", "book hotel", "unbook car", "unbook flight"]
    records = store.load_journal("run").records
    assert [record.step for record in records if record.kind is Kind.FAILURE] == [
        "#book#2",
        "on_failure/1#unbook#0",
    ]
    assert any(b"unbook" in record.body for record in records if record.kind is Kind.LOG)


def test_compensations_are_carried_over_turns_and_plain_functions_serve_too() -> None:
    @nl.agent(name="turns")
    async def turns(turn: int = 0) -> str:
        nl.on_failure(plainly, f"{turn}")
        if turn < 2:
            return nl.next_turn(turn + 1)  # type: ignore[no-any-return]
        raise ValueError("over")

    with pytest.raises(nl.RunFailed, match="over"):
        live(turns, QuickStore())
    assert WORLD.done == ["plainly 2", "plainly 1", "plainly 0"]


def test_a_run_that_was_undone_is_not_retried() -> None:
    WORLD.failing = {"book car"}
    store = QuickStore()

    async def main() -> None:
        await start(store, trip)
        with pytest.raises(nl.RunFailed):
            await finish(store)
        async with nl.Runtime(store) as rt:
            with pytest.raises(nl.RunFinished, match="undone"):
                await (await rt.get("run")).retry()

    run_async(main)


def test_only_actions_that_can_be_found_again_are_registered() -> None:
    @nl.decision(name="think")
    async def think() -> None: ...

    @nl.action(name="twin")
    async def twin() -> None: ...

    first = twin

    @nl.action(name="twin")
    async def twin_too() -> None: ...

    refused: list[str] = []

    @nl.agent(name="strict")
    async def strict() -> None:
        for bad in (think, first, print):
            try:
                nl.on_failure(bad)
            except nl.UsageError as error:
                refused.append(str(error))
        try:
            nl.on_failure(unbook, "x", nights=object())
        except nl.NotSerializable as error:
            refused.append(str(error))

    live(strict, QuickStore())
    assert len(refused) == 4
