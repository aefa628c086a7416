"""Divergence: what the journal contradicts is caught, explained, and executed by nobody."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import threading
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest

import ninelives as nl
from ninelives.core.model.commit import Commit, Verdict
from ninelives.core.model.inbox import ItemKind
from ninelives.core.model.run import Kind, State
from ninelives.engine.spec import registry
from tests.replay.lifetimes import QuickStore, Stage, first_life, once, run_async, second_life


class Versions:
    """Two versions of an agent's code under one name, and what their bodies did."""

    def __init__(self) -> None:
        self.stage, self.store = Stage(), QuickStore()

    def step(self, name: str, value: Any = "same", **options: Any) -> Any:
        """Declare a step that gives a value."""
        stage = self.stage

        async def body(x: int = 0) -> Any:
            return stage.did(value)

        return nl.action(body, name=name, **options)

    async def stop(self) -> None:
        """End the first life here."""
        stage = self.stage

        async def body() -> None:
            await stage.stop_here()

        await nl.action(body, name="stop")()

    def change(self, before: Callable[[], Any], after: Callable[[], Any]) -> Any:
        """Run the first version up to its stop, then the second to its end."""

        async def code() -> Any:
            found = await (after if self.stage.is_second else before)()
            if not self.stage.is_second:
                await self.stop()
            return found

        agent = nl.agent(name="versions")(code)

        async def main() -> Any:
            await first_life(self.stage, self.store, agent)
            return await second_life(self.store, agent)

        return run_async(main)


@pytest.fixture
def versions() -> Versions:
    """Return an empty pair of versions."""
    return Versions()


def test_changed_arguments_escalate_with_all_that_a_person_needs(versions: Versions) -> None:
    charge = versions.step("charge")
    ship = versions.step("ship")

    async def after() -> None:
        await charge(x=8)
        await ship()

    with pytest.raises(nl.RunEscalated, match="x: 7 → 8"):
        versions.change(lambda: charge(x=7), after)
    assert versions.stage.executed == []
    row = versions.store.read_run("run")
    assert row is not None
    assert row.state is State.ESCALATED
    (item,) = versions.store.list_inbox(run="run")
    assert item.kind is ItemKind.DIVERGENCE
    told = msgspec.json.decode(item.body)
    assert told["evidence"]["error"] == "Divergence"
    assert item.step == "#charge#0"
    assert "x: 7 → 8" in told["what"]
    assert "test_engine_divergence.py:" in told["what"]
    for remedy in ("Nothing was executed", "restore the old code", "ignore=", "nl.patched", "forgets="):
        assert remedy in told["remedy"]


def test_an_ignored_argument_may_change(versions: Versions) -> None:
    step = versions.step("ask", ignore=["x"])
    assert versions.change(lambda: step(x=7), lambda: step(x=8)) == "same"
    assert versions.stage.executed == []


def test_an_argument_equal_to_its_default_may_be_left_out(versions: Versions) -> None:
    step = versions.step("ask")
    assert versions.change(lambda: step(x=0), step) == "same"
    assert versions.stage.executed == []


def test_a_renamed_step_keeps_its_record_by_an_alias(versions: Versions) -> None:
    old, new = versions.step("old", "old value"), versions.step("new", "new value", aliases=["old"])
    assert versions.change(old, new) == "old value"
    assert versions.stage.executed == []


def test_an_effect_renamed_without_an_alias_is_refused_and_not_done_again(versions: Versions) -> None:
    old, new = versions.step("old", "old value"), versions.step("new", "new value")
    with pytest.raises(nl.RunEscalated, match=r"would start new now, but old\[0\]"):
        versions.change(old, new)
    assert versions.stage.executed == []
    (item,) = versions.store.list_inbox(run="run")
    remedy = msgspec.json.decode(item.body)["remedy"]
    for one in ('aliases=["old"]', 'forgets=["old"]', 'nl.patched("new")'):
        assert one in remedy


def test_a_step_whose_id_changed_is_not_taken_for_a_renamed_one(versions: Versions) -> None:
    old, new = versions.step("pay", id="a{x}"), versions.step("pay", id="b{x}")
    with pytest.raises(nl.RunEscalated, match="was not called by this code"):
        versions.change(old, new)
    (item,) = versions.store.list_inbox(run="run")
    remedy = msgspec.json.decode(item.body)["remedy"]
    assert "If pay has another id= now, put the old one back" in remedy
    assert "renamed" not in remedy


def test_a_read_renamed_without_an_alias_is_a_new_one(versions: Versions) -> None:
    old, new = (versions.step(name, name, reads_only=True) for name in ("old", "new"))
    assert versions.change(old, new) == "new"
    assert versions.stage.executed == ["new"]


def test_other_reads_may_be_added_moved_and_removed(versions: Versions) -> None:
    names = ("one", "two", "three", "four")
    one, two, three, four = (versions.step(name, name, reads_only=True) for name in names)

    async def before() -> list[str]:
        return [await one(), await two(), await three()]

    async def after() -> list[str]:
        return [await four(), await three(), await one()]

    assert versions.change(before, after) == ["four", "three", "one"]
    assert versions.stage.executed == ["four"]


def test_a_changed_annotation_is_a_divergence(versions: Versions) -> None:
    text, number = versions.step("read", "many", returns=str), versions.step("read", 3, returns=int)
    with pytest.raises(nl.RunEscalated, match="no longer fits its annotation"):
        versions.change(text, number)
    assert versions.stage.executed == []
    (item,) = versions.store.list_inbox(run="run")
    told = msgspec.json.decode(item.body)
    assert item.step == "#read#0"
    assert (
        told["remedy"]
        == "Give the step upgrade= to map old values, or restore the type until this run has ended"
    )


def test_upgrade_maps_recorded_values_to_the_new_annotation(versions: Versions) -> None:
    text = versions.step("read", "42", returns=str)
    number = versions.step("read", 3, returns=int, upgrade=int)
    assert versions.change(text, number) == 42
    assert versions.stage.executed == []


# A plan before and after one of its fields was renamed.
OLD: Any = dataclasses.make_dataclass("Plan", [("who", str), ("paid", int, 0)])
NEW: Any = dataclasses.make_dataclass("Plan", [("who", str), ("cents", int, 0)])
LOST = "the recorded Plan has 'paid', which is no field of it any more"


@pytest.mark.parametrize("kind", [{}, {"resumable": False, "timeout": 5}, {"key": "k:{x}"}])
def test_a_recorded_value_whose_field_was_renamed_is_a_divergence(
    versions: Versions, kind: dict[str, Any]
) -> None:
    old = versions.step("plan", OLD("bob", 5), returns=OLD, **kind)
    new = versions.step("plan", NEW("bob", 5), returns=NEW, **kind)
    with pytest.raises(nl.RunEscalated, match=LOST):
        versions.change(old, new)
    assert versions.stage.executed == []
    (item,) = versions.store.list_inbox(run="run")
    told = msgspec.json.decode(item.body)
    assert told["what"].endswith("(at $.paid)")
    assert "upgrade= to map old values, or keep the field, with a default" in told["remedy"]


def test_upgrade_is_given_the_value_whose_field_was_renamed(versions: Versions) -> None:
    old = versions.step("plan", OLD("bob", 5), returns=OLD)
    new = versions.step("plan", None, returns=NEW, upgrade=lambda value: NEW(value["who"], value["paid"]))

    async def after() -> str:
        return repr(await new())

    assert versions.change(old, after) == repr(NEW("bob", 5))


def test_upgrade_maps_a_value_that_another_run_recorded_under_the_key() -> None:
    store, versions = QuickStore(), Versions()
    old = versions.step("plan", OLD("bob", 5), returns=OLD, key="k:{x}")
    new = versions.step(
        "plan", None, returns=NEW, key="k:{x}", upgrade=lambda value: NEW("bob", value["paid"])
    )

    async def first() -> Any:
        return (await old()).paid

    async def second() -> Any:
        return (await new()).cents

    assert once(nl.agent(name="first")(first), store=store) == 5
    assert once(nl.agent(name="second")(second), store=store) == 5
    assert versions.stage.executed == [OLD("bob", 5)]


@pytest.mark.parametrize("is_next", [False, True])
def test_arguments_whose_field_was_renamed_are_a_divergence(is_next: bool) -> None:
    stage, store = Stage(), QuickStore()

    def declare(kind: Any) -> Any:
        async def code(plan: Any, turn: int = 0) -> Any:
            if is_next and not turn:
                return nl.next_turn(plan, 1)
            await nl.action(stage.stop_here, name="stop")()
            return plan

        code.__annotations__ = {"plan": list[kind], "turn": int, "return": list[kind]}
        registry.AGENTS.pop("planner", None)
        return nl.agent(name="planner")(code)

    async def main() -> None:
        await first_life(stage, store, declare(OLD), [OLD("bob", 5)])
        declare(NEW)
        async with nl.Runtime(store) as rt:
            await rt.work(until_idle=True)
            with pytest.raises(nl.RunEscalated, match=LOST):
                await (await rt.get("run")).result()

    run_async(main)
    (item,) = store.list_inbox(run="run")
    told = msgspec.json.decode(item.body)
    assert told["what"].endswith("(at planner(plan)[0].paid)")
    assert told["remedy"] == "Keep the field, with a default, until this run has ended"


def test_a_childs_result_whose_field_was_renamed_is_a_divergence(versions: Versions) -> None:
    def code(kind: Any) -> Any:
        async def child() -> Any:
            return kind("bob", 5)

        async def parent() -> Any:
            child.__annotations__ = {"return": kind}
            registry.AGENTS.pop("kid", None)
            return await (await nl.spawn(nl.agent(name="kid")(child))).result()

        return parent

    with pytest.raises(nl.RunEscalated, match=LOST):
        versions.change(code(OLD), code(NEW))


@pytest.mark.parametrize("later", [OLD, NEW])
def test_a_signal_may_have_more_than_its_type_and_its_type_may_not_lose_a_field(
    versions: Versions, later: Any
) -> None:
    async def before() -> Any:
        versions.store.send_signal("run", "go", b'{"who":"bob","paid":5,"trace":"x"}')
        return await nl.receive("go", type=OLD)

    async def after() -> Any:
        return repr(await nl.receive("go", type=later))

    if later is OLD:
        assert versions.change(before, after) == repr(OLD("bob", 5))
    else:
        with pytest.raises(nl.RunEscalated, match=LOST):
            versions.change(before, after)


def test_an_error_that_is_no_longer_listed_is_a_divergence(versions: Versions) -> None:
    class Refused(Exception):
        pass

    stage = versions.stage

    async def body() -> None:
        stage.did("body")
        raise Refused("no")

    listed = nl.action(body, name="refusing", raises=[Refused], retry=nl.Retry(attempts=1))
    unlisted = nl.action(body, name="refusing", retry=nl.Retry(attempts=1))

    async def before() -> None:
        with pytest.raises(Refused):
            await listed()

    with pytest.raises(nl.RunEscalated, match="raises="):
        versions.change(before, unlisted)
    assert stage.executed == []


def test_a_named_branch_keeps_its_records_when_code_moves(versions: Versions) -> None:
    step = versions.step("work", "work", reads_only=True)
    other = versions.step("work", "fresh work", reads_only=True)

    async def branch() -> str:
        with nl.branch("payments"):
            return str(await step(x=1))

    async def before() -> str:
        return await branch()

    async def after() -> list[str]:
        async def moved() -> str:
            return str(await other(x=5))

        return [*await nl.gather(moved()), await branch()]

    assert versions.change(before, after) == ["fresh work", "work"]
    assert versions.stage.executed == ["fresh work"]


class GatedStore(QuickStore):
    """A store whose commits wait until somebody opens the gate."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()

    def commit(self, batch: Sequence[Commit]) -> list[Verdict]:
        """Commit, once the gate is open."""
        self.gate.wait()
        return super().commit(batch)


async def _limit(slow: Any, how: str) -> None:
    if how == "wait_for":
        await asyncio.wait_for(slow(), 0.005)
    else:
        async with asyncio.timeout(0.005):
            await slow()


@pytest.mark.parametrize("how", ["timeout", "wait_for", "timeout at the barrier"])
def test_a_foreign_timer_across_a_step_is_refused(how: str) -> None:
    store = GatedStore()
    executed: list[str] = []

    @nl.action(name="slow")
    async def slow() -> None:
        executed.append("slow")
        await asyncio.Event().wait()

    @nl.agent(name="foreign")
    async def agent() -> str:
        if how == "timeout at the barrier":
            nl.now()  # not durable before the gate is open, and no body begins before
        else:
            store.gate.set()
        with pytest.raises(nl.UsageError) as caught:
            await _limit(slow, how)
        store.gate.set()
        return str(caught.value)

    said = once(agent, store=store)
    assert "nl.timeout" in said
    assert "slow" in said
    assert executed == ([] if how == "timeout at the barrier" else ["slow"])


def test_an_agent_whose_parameter_went_away_escalates() -> None:
    stage, store = Stage(), QuickStore()

    async def old(order: int) -> None:
        await nl.action(stage.stop_here, name="stop")()

    async def new() -> None: ...

    async def main() -> None:
        await first_life(stage, store, nl.agent(name="shrunk")(old), 7)
        registry.AGENTS.pop("shrunk")
        nl.agent(name="shrunk")(new)
        async with nl.Runtime(store) as rt:
            await rt.work(until_idle=True)
            with pytest.raises(nl.RunEscalated, match="has no parameter 'order' any more"):
                await (await rt.get("run")).result()

    run_async(main)


def line_of(function: Callable[..., Any], text: str) -> str:
    """Return file and line of a text in a function's source."""
    lines, first = inspect.getsourcelines(function)
    number = next(number for number, line in enumerate(lines) if text in line)
    return f"{inspect.getsourcefile(function)}:{first + number}"


def test_a_divergence_of_arguments_names_the_line_that_asks(versions: Versions) -> None:
    step = versions.step("one")

    async def after() -> Any:
        await asyncio.sleep(0)
        return await step(x=8)

    with pytest.raises(nl.RunEscalated) as told:
        versions.change(lambda: step(x=7), after)
    assert line_of(after, "step(x=8)") in str(told.value)
    assert "one[0]" in str(told.value)
    assert "ninelives inbox" in str(told.value)


def test_a_divergence_of_values_names_the_line_that_asks(versions: Versions) -> None:
    text, number = versions.step("read", "many", returns=str), versions.step("read", 3, returns=int)

    async def after() -> Any:
        return await number()

    with pytest.raises(nl.RunEscalated) as told:
        versions.change(text, after)
    assert line_of(after, "await number()") in str(told.value)


def test_a_divergence_in_a_plain_agent_names_the_line_that_asks() -> None:
    stage, store = Stage(), QuickStore()
    reached: list[Callable[[], object]] = []

    @nl.action(name="plain-one")
    def one(x: int) -> int:
        return x

    @nl.action(name="plain-stop")
    def stop() -> None:
        reached[0]()
        threading.Event().wait(30 if not stage.is_second else 0)

    @nl.agent(name="plain-versions")
    def agent() -> None:
        one(2 if stage.is_second else 1)
        stop()

    async def main() -> None:
        loop = asyncio.get_running_loop()
        reached.append(lambda: loop.call_soon_threadsafe(stage.reached.set) if stage.reached else None)
        await first_life(stage, store, agent)
        with pytest.raises(nl.RunEscalated) as told:
            await second_life(store, agent)
        assert line_of(agent.raw, "one(2 if") in str(told.value)

    run_async(main)


def test_a_divergence_of_a_step_that_is_a_task_names_the_step(versions: Versions) -> None:
    step = versions.step("one")

    async def after() -> Any:
        return await asyncio.create_task(step(x=8))

    with pytest.raises(nl.RunEscalated, match="called as a task"):
        versions.change(lambda: asyncio.create_task(step(x=7)), after)


def test_a_divergence_of_a_plain_step_that_is_mapped_names_the_step(versions: Versions) -> None:
    def body(x: int) -> int:
        return x

    step = nl.action(name="one")(body)

    async def mapped(x: int) -> Any:
        return await asyncio.to_thread(nl.sync.map, step, [x])

    with pytest.raises(nl.RunEscalated, match=r"test_engine_divergence\.py:\d+ \(the step; .* in a thread\)"):
        versions.change(lambda: mapped(7), lambda: mapped(8))


KINDS: list[dict[str, Any]] = [
    {"resumable": False},
    {"resumable": False, "verify": True},
    {"resumable": False, "key": "pay-{order}"},
    {"resumable": True, "key": "pay-{order}-{cents}"},
    {"resumable": True},
]


@pytest.mark.parametrize("renamed", [False, True])
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_step_under_way_is_not_asked_for_with_other_arguments(kind: dict[str, Any], renamed: bool) -> None:
    """It has perhaps taken effect with the old ones: with the new ones it would a second time."""
    stage, store = Stage(), QuickStore()
    verified: list[int] = []

    async def verify(order: str, cents: int, key: str = "") -> Any:
        verified.append(cents)
        return nl.NotHappened()

    async def pay(order: str, cents: int) -> int:
        stage.did(cents)
        while not any(  # noqa: ASYNC110 (the store tells nobody of an intent)
            record.kind is Kind.INTENT for record in store.load_journal("run").records
        ):
            await asyncio.sleep(0.001)
        await stage.stop_here()
        return cents

    options = kind | ({"verify": verify} if "verify" in kind else {})
    before = nl.action(pay, name="pay", **options)
    after = nl.action(pay, name="send", aliases=["pay"], **options) if renamed else before

    async def code(order: str) -> Any:
        return await (after(order, 999) if stage.is_second else before(order, 100))

    agent = nl.agent(name="buyer")(code)

    async def main() -> Any:
        await first_life(stage, store, agent, "42")
        return await second_life(store, agent, "42")

    with pytest.raises(nl.RunEscalated, match="cents: 100 → 999"):
        run_async(main)
    assert stage.executed == []
    assert verified == []
    (item,) = store.list_inbox(run="run")
    assert item.kind is ItemKind.DIVERGENCE
    assert "was started with" in msgspec.json.decode(item.body)["what"]
