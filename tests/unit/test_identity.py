"""Step identity: a call finds its record however the code around it was changed; no effect is repeated."""

from __future__ import annotations

import asyncio
import logging
import re
import threading
from collections.abc import Callable, Coroutine
from dataclasses import make_dataclass
from itertools import count
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

import ninelives as nl
from ninelives.core.model.inbox import ItemKind
from ninelives.core.model.run import Kind, RunQuery, State
from ninelives.engine.run import lookup
from ninelives.engine.run import tasks as run_tasks
from ninelives.engine.spec.registry import STEPS
from ninelives.engine.worker import session
from tests.replay.lifetimes import QuickStore, Stage, first_life, prove_gone, run_async, second_life

Code = Callable[[], Coroutine[Any, Any, Any]]


class Edit:
    """Code before and after an edit, and what their bodies did in the second life, with which keys."""

    def __init__(self) -> None:
        self.stage, self.store = Stage(), QuickStore()
        self.keys: list[str] = []
        self.first: list[Any] = []
        self.options: dict[str, Any] = {}

    def step(self, name: str, *, declare: Any = nl.action, **options: Any) -> Any:
        """Declare a step that gives its name and its argument."""

        async def body(x: Any = 0) -> str:
            self.keys.append(nl.key())
            return str(self.stage.did(f"{name}({x})"))

        return declare(body, name=name, **options)

    def stuck(self, name: str, **options: Any) -> Any:
        """Declare an action that the first life stops in, once its start is on record."""

        async def body(x: Any = 0) -> str:
            self.keys.append(nl.key())
            self.stage.did(f"{name}({x})")
            while not any(  # noqa: ASYNC110 (the store tells nobody of an intent)
                record.kind is Kind.INTENT for record in self.store.load_journal("run").records
            ):
                await asyncio.sleep(0.001)
            await self.stage.stop_here()
            return f"{name}({x})"

        return nl.action(body, name=name, **options)

    async def stop(self) -> None:
        """End the first life here; a read, which holds nothing up."""
        await nl.decision(self.stage.stop_here, name="stop")()

    def make(self, before: Code, after: Code) -> Any:
        """Run the code before up to its stop, then the code after to its end."""

        async def code() -> Any:
            return await (after if self.stage.is_second else before)()

        agent = nl.agent(name="edited")(code)

        async def main() -> Any:
            await first_life(self.stage, self.store, agent)
            prove_gone(self.store)
            if self.options:
                nl.agent(name="edited", **self.options)(code)
            return await second_life(self.store, agent)

        return run_async(main)

    def refused(self, before: Code, after: Code) -> str:
        """Expect a divergence in which nothing was executed; returns what a person is told."""
        with pytest.raises(nl.RunEscalated):
            self.make(before, after)
        assert self.stage.executed == []
        (item,) = self.store.list_inbox(run="run")
        assert item.kind is ItemKind.DIVERGENCE
        told = msgspec.json.decode(item.body)
        return f"{told['what']} {told['remedy']}"


@pytest.fixture
def edit() -> Edit:
    """Return an edit with nothing done yet."""
    return Edit()


@pytest.fixture
def another_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the code after the edit be in another file than the code before it."""
    versions = count()
    monkeypatch.setattr(session, "code_version", lambda _: f"version {next(versions)}")


# By what a call is ------------------------------------------------------------------------------------


def shapes(one: Code, two: Code) -> dict[str, Code]:
    """Return ways to do two things."""

    async def sequence() -> list[str]:
        return [await one(), await two()]

    async def gather() -> list[str]:
        return list(await asyncio.gather(one(), two()))

    async def backwards() -> list[str]:
        return list(await asyncio.gather(two(), one()))

    async def group() -> list[str]:
        async with asyncio.TaskGroup() as tasks:
            made = [tasks.create_task(work()) for work in (one, two)]
        return [task.result() for task in made]

    async def completed() -> list[str]:
        return [await done for done in asyncio.as_completed([one(), two()])]

    async def inner() -> list[str]:
        return await asyncio.create_task(sequence())

    async def named() -> list[str]:
        with nl.branch("x"):
            first = await one()
        with nl.branch("x"):
            return [first, await two()]

    made = (sequence, gather, backwards, group, completed, inner, named)
    return {shape.__name__: shape for shape in made}


NAMES = ("sequence", "gather", "backwards", "group", "completed", "inner", "named")


@pytest.mark.parametrize("after", NAMES)
@pytest.mark.parametrize("before", ["sequence", "gather", "completed", "named"])
def test_effects_are_found_in_whatever_shape_the_code_asks_for_them(
    before: str, after: str, edit: Edit
) -> None:
    mail, pay = edit.step("mail"), edit.step("pay", resumable=False)

    async def one() -> str:
        return str(await mail(1)) + str(await pay(1))

    async def two() -> str:
        return str(await mail(2)) + str(await pay(2))

    async def do(shape: str) -> list[str]:
        done = sorted(await shapes(one, two)[shape]())
        await edit.stop()
        return done

    expected = ["mail(1)pay(1)", "mail(2)pay(2)"]
    assert edit.make(lambda: do(before), lambda: do(after)) == expected
    assert edit.stage.executed == []


def test_a_record_is_not_taken_from_another_branch_that_claims_it_by_its_place(edit: Edit) -> None:
    """Only the second of two equal calls is recorded: on replay the first must not take its record."""
    got: dict[str, str] = {}

    async def body(x: int) -> str:
        edit.stage.did(nl.key())
        if not edit.stage.is_second and "one" in nl.key():
            await asyncio.Event().wait()
        return nl.key()

    pay = nl.action(body, name="pay")

    async def branch(name: str) -> None:
        got[name] = await pay(5)
        if name == "two":
            await edit.stop()

    async def code() -> None:
        one, two = cast("Any", branch("one")), cast("Any", branch("two"))
        one.__qualname__, two.__qualname__ = "one", "two"
        await asyncio.gather(one, two)

    edit.make(code, code)
    assert "two" in got["two"]
    assert "one" in got["one"]
    assert edit.stage.executed == [got["one"]]


def test_a_start_that_moved_goes_on_under_the_key_it_was_made_with(edit: Edit) -> None:
    mail = edit.stuck("mail")

    async def after() -> Any:
        return await asyncio.create_task(mail(1))

    assert edit.make(lambda: mail(1), after) == "mail(1)"
    assert len(edit.keys) == 2
    assert edit.keys[0] == edit.keys[1]


@pytest.mark.usefixtures("another_file")
def test_two_calls_never_share_an_id(edit: Edit) -> None:
    mail, read = edit.step("mail"), edit.step("read", reads_only=True)

    async def before() -> None:
        await read(1)
        await mail(1)
        await edit.stop()

    async def after() -> list[str]:
        done = [await read(2), await read(1), await mail(1), await mail(2)]
        await edit.stop()
        return done

    assert edit.make(before, after) == ["read(2)", "read(1)", "mail(1)", "mail(2)"]
    assert edit.stage.executed == ["read(2)", "mail(2)"]
    assert len(set(edit.keys)) == 4
    steps = [one.step for one in edit.store.load_journal("run").records if one.kind is Kind.RESULT]
    assert len(steps) == len(set(steps))


def test_a_branch_of_one_name_entered_twice_is_two_branches(edit: Edit) -> None:
    pay = edit.step("pay", resumable=False)

    async def code() -> list[str]:
        done = []
        for cents in (5, 5):
            with nl.branch("month"):
                done.append(await pay(cents))
        await edit.stop()
        return done

    assert edit.make(code, code) == ["pay(5)", "pay(5)"]
    assert edit.stage.executed == []
    assert len(set(edit.keys)) == 2


# Effects that were passed over --------------------------------------------------------------------------


def test_a_fresh_effect_waits_for_a_read_after_which_a_recorded_one_is_asked_for(edit: Edit) -> None:
    mail, pay, read = edit.step("mail"), edit.step("pay"), edit.step("read", reads_only=True)

    async def before() -> None:
        await mail(1)
        await edit.stop()

    async def after() -> list[str]:
        async def slowly() -> str:
            await read(1)
            return str(await mail(1))

        return list(await asyncio.gather(pay(1), slowly()))

    assert edit.make(before, after) == ["pay(1)", "mail(1)"]
    assert edit.stage.executed == ["read(1)", "pay(1)"]


def test_an_open_start_that_was_passed_over_stops_the_run_before_an_effect(edit: Edit) -> None:
    mail, pay = edit.stuck("mail"), edit.step("pay")
    told = edit.refused(lambda: mail(1), lambda: pay(1))
    assert "would start pay now, but mail[0](x=1), which was started" in told


def test_an_effect_that_was_passed_over_counts_though_a_read_has_its_name(edit: Edit) -> None:
    look, pay, mail = edit.step("pay", reads_only=True), edit.step("pay"), edit.step("mail")

    async def before() -> None:
        await look(1)
        await pay(2)
        await edit.stop()

    assert "would start mail now, but pay[1](x=2), which was done" in edit.refused(before, lambda: mail(3))


def test_what_the_agent_forgets_does_not_stop_it(edit: Edit) -> None:
    mail, pay = edit.step("mail"), edit.step("pay")
    edit.options = {"forgets": ["mail"]}

    async def before() -> None:
        await mail(1)
        await edit.stop()

    assert edit.make(before, lambda: pay(1)) == "pay(1)"
    assert edit.stage.executed == ["pay(1)"]


def test_a_start_is_not_repeated_with_less_care_than_it_was_made_with(edit: Edit) -> None:
    strict, lax = edit.stuck("mail", resumable=False), edit.stuck("mail")
    assert "resumable=False back" in edit.refused(lambda: strict(1), lambda: lax(1))


def test_code_inserted_behind_patched_is_only_for_runs_that_have_not_come_there(edit: Edit) -> None:
    mail, pay = edit.step("mail"), edit.step("pay")

    async def before() -> None:
        await mail(1)
        await edit.stop()

    async def after() -> list[bool]:
        early, late = nl.patched("early"), None
        if early:
            await pay(1)
        await mail(1)
        await edit.stop()
        late = nl.patched("late")
        if late:
            await pay(2)
        return [early, late, nl.patched("early"), nl.patched("late")]

    assert edit.make(before, after) == [False, True, False, True]
    assert edit.stage.executed == ["pay(2)"]


def test_patched_says_the_same_on_replay(edit: Edit) -> None:
    mail, pay = edit.step("mail"), edit.step("pay")

    async def code() -> list[Any]:
        new = nl.patched("new")
        done = [await pay(1)] if new else []
        await mail(1)
        await edit.stop()
        return [new, *done]

    assert edit.make(code, code) == [True, "pay(1)"]
    assert edit.stage.executed == []


# Reads ------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("another_file")
def test_a_decision_with_other_arguments_is_asked_again_and_a_warning_says_so(
    edit: Edit, caplog: pytest.LogCaptureFixture
) -> None:
    choose, mail = edit.step("choose", declare=nl.decision), edit.step("mail")

    async def do(x: int) -> list[str]:
        done = [await choose(x), await mail(1)]
        await edit.stop()
        return done

    with caplog.at_level(logging.WARNING, "ninelives"):
        assert edit.make(lambda: do(1), lambda: do(2)) == ["choose(2)", "mail(1)"]
    assert edit.stage.executed == ["choose(2)"]
    assert "choose[0] is executed again" in caplog.text
    assert "x: 1 → 2" in caplog.text


def test_a_decision_with_other_arguments_in_unchanged_code_is_a_divergence(edit: Edit) -> None:
    choose = edit.step("choose", declare=nl.decision)

    async def do(x: int) -> None:
        await choose(x)
        await edit.stop()

    assert "x: 1 → 2" in edit.refused(lambda: do(1), lambda: do(2))


# Ids from outside ---------------------------------------------------------------------------------------


def test_a_call_is_found_by_its_id_whatever_stands_before_it(edit: Edit) -> None:
    mail = edit.step("mail", id="call-{x}")

    async def before() -> None:
        await mail(1)
        await mail(2)
        await edit.stop()

    async def after() -> list[str]:
        return list(await asyncio.gather(mail(2), mail(1)))

    assert edit.make(before, after) == ["mail(2)", "mail(1)"]
    assert edit.stage.executed == []
    ids = [one.step for one in edit.store.load_journal("run").records if "mail" in one.step]
    assert ids == ["@call-int=1#mail#0", "@call-int=2#mail#0"]


@pytest.mark.parametrize("options", [{}, {"resumable": False}])
def test_one_id_for_two_calls_is_refused(edit: Edit, options: dict[str, Any]) -> None:
    mail = edit.step("mail", id=lambda x: "same", **options)

    async def code() -> None:
        await mail(1)
        await mail(2)

    agent = nl.agent(name="twins")(code)

    async def main() -> None:
        async with nl.Runtime(edit.store) as rt:
            await rt.run(agent)

    with pytest.raises(nl.RunFailed, match="two calls of mail have one id"):
        run_async(main)
    assert edit.stage.executed == ["mail(1)"]


def test_an_effect_with_another_id_is_another_effect(edit: Edit) -> None:
    ids = iter(["one", "two"])
    mail = edit.step("mail", id=lambda x: next(ids))

    async def before() -> None:
        await mail(1)
        await edit.stop()

    assert "mail[0](x=1), which was done" in edit.refused(before, lambda: mail(1))


# Over the border of a turn -------------------------------------------------------------------------------


def over_the_border(call: Code, *, keeps: Code | None = None) -> Code:
    """Return code that ends its first turn, after what it `keeps`, and makes a call in the second."""

    async def code() -> Any:
        if nl.info().turn == 0:
            if keeps is not None:
                await keeps()
            return nl.next_turn()
        return await call()

    return code


@pytest.mark.parametrize("shape", NAMES)
@pytest.mark.parametrize("options", [{}, {"resumable": False}, {"key": "{x}"}])
def test_an_effect_that_moved_into_the_next_turn_stops_the_run_before_its_turn_ends(
    edit: Edit, shape: str, options: dict[str, Any]
) -> None:
    mail, pay = edit.step("mail"), edit.step("pay", **options)

    async def before() -> None:
        await shapes(lambda: mail(1), lambda: pay(1))[shape]()
        await edit.stop()

    told = edit.refused(before, over_the_border(lambda: pay(1), keeps=lambda: mail(1)))
    assert "ends its turn with nl.next_turn(), but" in told
    assert "pay[0](x=1), which was done" in told
    assert 'forgets=["pay"]' in told
    assert not any(record.kind is Kind.TURN for record in edit.store.load_journal("run", since=1).records)


@pytest.mark.parametrize("options", [{}, {"resumable": False, "timeout": 0.3}])
def test_a_start_that_moved_into_the_next_turn_stops_the_run_before_its_turn_ends(
    edit: Edit, options: dict[str, Any]
) -> None:
    pay = edit.stuck("pay", **options)
    told = edit.refused(lambda: pay(1), over_the_border(lambda: pay(1)))
    assert "pay[0](x=1), which was started" in told


def test_a_child_that_moved_into_the_next_turn_is_not_born_twice(edit: Edit) -> None:
    note = edit.step("note")

    async def kid() -> str:
        return str(await note(1))

    child = nl.agent(name="kid")(kid)

    async def before() -> None:
        await (await nl.spawn(child)).result()
        await edit.stop()

    async def spawned() -> str:
        return str(await (await nl.spawn(child)).result())

    assert "spawn:kid[0]" in edit.refused(before, over_the_border(spawned))
    assert len(edit.store.list_runs(RunQuery(agent="kid"))) == 1


def test_a_key_keeps_an_effect_single_that_moves_into_the_next_turn_and_is_forgotten_in_this_one(
    edit: Edit,
) -> None:
    pay = edit.step("pay", key="pay-{x}")
    edit.options = {"forgets": ["pay"]}

    async def before() -> None:
        await pay(1)
        await edit.stop()

    assert edit.make(before, over_the_border(lambda: pay(1))) == "pay(1)"
    assert edit.stage.executed == []


def test_a_turn_ends_although_a_read_is_asked_for_no_more(edit: Edit) -> None:
    look, pay = edit.step("look", reads_only=True), edit.step("pay")

    async def before() -> None:
        await look(1)
        await pay(1)
        await edit.stop()

    assert edit.make(before, over_the_border(lambda: look(1), keeps=lambda: pay(1))) == "look(1)"
    assert edit.stage.executed == ["look(1)"]


# Open starts at the end, and keys -----------------------------------------------------------------------


def test_a_start_that_nobody_asks_for_is_settled_after_an_action_that_is_still_under_way(edit: Edit) -> None:
    mail, begun = edit.stuck("mail", resumable=False, timeout=0.3), asyncio.Event()
    edit.options = {"forgets": ["mail"]}

    async def slow() -> str:
        begun.set()
        await asyncio.sleep(run_tasks.ABANDON_SECONDS * 1.2)
        return "paid"

    pay = nl.action(slow, name="pay", resumable=False)
    tasks: list[asyncio.Task[str]] = []

    async def after() -> str:
        tasks.append(asyncio.ensure_future(pay()))
        await begun.wait()
        return "done"

    with pytest.raises(nl.RunEscalated, match="did mail happen"):
        edit.make(lambda: mail(1), after)


@pytest.mark.parametrize("happened", [True, False])
@pytest.mark.parametrize("key", [None, "mail-{x}"])
@pytest.mark.parametrize("fails", [False, True])
def test_a_start_that_nobody_asks_for_is_settled_by_a_person_before_the_run_ends(
    edit: Edit, key: str | None, happened: bool, fails: bool
) -> None:
    mail = edit.stuck("mail", resumable=False, key=key, timeout=0.3)

    async def after() -> str:
        if fails:
            raise ValueError("as the code says")
        return "done"

    with pytest.raises(nl.RunEscalated, match="did mail happen"):
        edit.make(lambda: mail(1), after)
    assert edit.stage.executed == []

    async def main() -> Any:
        async with nl.Runtime(edit.store) as rt:
            (item,) = await rt.inbox("run")
            if happened:
                await item.settle(happened=True, result="by hand", by="ada")
            else:
                await item.settle(happened=False, by="ada")
            working = asyncio.create_task(rt.work())
            try:
                return await (await rt.get("run")).result(timeout=5)
            finally:
                working.cancel()

    if fails:
        with pytest.raises(nl.RunFailed, match="as the code says"):
            run_async(main)
    else:
        assert run_async(main) == "done"
    assert edit.stage.executed == []


@pytest.mark.parametrize("change", ["clock", "added", "changed", "removed"])
@pytest.mark.parametrize("happened", [True, False])
def test_a_start_under_another_key_counts(edit: Edit, change: str, happened: bool) -> None:
    verified: list[str] = []

    async def verify(x: int, key: str = "") -> Any:
        verified.append(key)
        return nl.Happened("seen") if happened else nl.NotHappened()

    def key(x: int) -> str:
        return f"mail:{len(edit.keys)}"

    keys: dict[str, tuple[Any, Any]] = {
        "clock": (key, key),
        "added": (None, "mail:{x}"),
        "changed": ("mail:{x}", "letter:{x}"),
        "removed": ("mail:{x}", None),
    }
    before, after = (
        edit.stuck("mail", resumable=False, key=one, verify=verify, timeout=0.3) for one in keys[change]
    )
    result = edit.make(lambda: before(1), lambda: after(1))
    assert set(verified) == {edit.keys[0]}
    assert result == ("seen" if happened else "mail(1)")
    assert edit.stage.executed == ([] if happened else ["mail(1)"])


@pytest.mark.parametrize("change", ["added", "changed"])
def test_a_resumable_start_is_repeated_under_its_old_key(edit: Edit, change: str) -> None:
    options = {"key": "mail:{x}"} if change == "changed" else {}
    before, after = edit.stuck("mail", **options), edit.stuck("mail", key="letter:{x}")
    assert edit.make(lambda: before(1), lambda: after(1)) == "mail(1)"
    assert edit.keys[0] == edit.keys[1]


@pytest.mark.parametrize("resumable", [True, False])
def test_an_alias_reaches_the_business_key(edit: Edit, resumable: bool) -> None:
    async def verify(x: int, key: str = "") -> Any:
        return nl.NotHappened()

    options: dict[str, Any] = {"key": "mail:{x}", "resumable": resumable}
    if not resumable:
        options |= {"verify": verify, "timeout": 0.3}
    before, after = edit.stuck("mail", **options), edit.stuck("letter", aliases=["mail"], **options)
    assert edit.make(lambda: before(1), lambda: after(1)) == "letter(1)"

    async def main() -> Any:
        @nl.agent(name="other")
        async def other() -> Any:
            return await after(1)

        async with nl.Runtime(edit.store) as rt:
            return await rt.run(other)

    assert run_async(main) == "letter(1)"
    assert edit.stage.executed == ["letter(1)"]


# Built-ins ----------------------------------------------------------------------------------------------


def test_built_in_steps_are_found_elsewhere(edit: Edit) -> None:
    @nl.agent(name="identity-child")
    async def child(x: int) -> int:
        return x

    async def do() -> list[Any]:
        await nl.sleep(0)
        born = await nl.spawn(child, 7)
        return [born.id, await born.result()]

    async def before() -> None:
        edit.first = await do()
        await edit.stop()

    async def after() -> Any:
        return await asyncio.create_task(do())

    assert edit.make(before, after) == edit.first
    assert edit.store.read_run("run") is not None
    assert len(edit.store.list_runs(RunQuery(parent="run", limit=10))) == 1


@pytest.mark.parametrize("id", [None, "my-child"])
def test_a_child_that_may_have_been_born_is_found_elsewhere(edit: Edit, id: str | None) -> None:
    @nl.agent(name="identity-child")
    async def child(x: int) -> int:
        return x

    class Stopping(QuickStore):
        def create_runs(self, new: Any, **options: Any) -> Any:
            born = super().create_runs(new, **options)
            if new[0].parent is not None and not edit.stage.is_second:
                loop.call_soon_threadsafe(cast("asyncio.Event", edit.stage.reached).set)
                released.wait(10)
            return born

    loop: asyncio.AbstractEventLoop
    released = threading.Event()
    edit.store = Stopping()

    async def before() -> None:
        nonlocal loop
        loop = asyncio.get_running_loop()
        try:
            await nl.spawn(child, 7, id=id)
        finally:
            released.set()

    async def after() -> Any:
        async def moved() -> Any:
            return await (await nl.spawn(child, 7, id=id)).result()

        return await asyncio.create_task(moved())

    assert edit.make(before, after) == 7
    assert len(edit.store.list_runs(RunQuery(parent="run", limit=10))) == 1


def test_a_compensation_that_moved_is_registered_once(edit: Edit) -> None:
    mail, refund, void = edit.step("mail"), edit.step("refund"), edit.step("void")

    async def before() -> None:
        nl.on_failure(refund, 1)
        nl.on_failure(refund, 2)
        await mail(1)
        await edit.stop()

    async def after() -> None:
        async def inner() -> None:
            nl.on_failure(refund, 1)
            nl.on_failure(void, 3)
            nl.on_failure(refund, 2)
            await mail(1)
            raise ValueError("no")

        await asyncio.create_task(inner())

    with pytest.raises(nl.RunFailed):
        edit.make(before, after)
    assert sorted(edit.stage.executed) == ["refund(1)", "refund(2)", "void(3)"]
    row = edit.store.read_run("run")
    assert row is not None
    assert row.state is State.FAILED


@pytest.mark.parametrize("is_declared", [True, False])
def test_a_compensation_that_was_renamed_is_registered_and_called_once(edit: Edit, is_declared: bool) -> None:
    mail, refund = edit.step("mail"), edit.step("refund")
    renamed = edit.step("refund_all", aliases=["refund"])

    async def before() -> None:
        nl.on_failure(refund, 1)
        await mail(1)
        await edit.stop()

    async def after() -> None:
        if not is_declared:
            del STEPS["refund"]
        nl.on_failure(renamed, 1)
        await mail(1)
        raise ValueError("no")

    with pytest.raises(nl.RunFailed):
        edit.make(before, after)
    assert edit.stage.executed == ["refund(1)" if is_declared else "refund_all(1)"]


def test_a_compensation_that_was_renamed_without_an_alias_stops_the_run(edit: Edit) -> None:
    mail, refund, renamed = edit.step("mail"), edit.step("refund"), edit.step("refund_all")

    async def before() -> None:
        nl.on_failure(refund, 1)
        await mail(1)
        await edit.stop()

    async def after() -> None:
        del STEPS["refund"]
        nl.on_failure(renamed, 1)
        await mail(1)
        raise ValueError("no")

    assert 'aliases=["refund"]' in edit.refused(before, after)


def test_a_compensation_whose_argument_has_a_new_default_is_registered_once(edit: Edit) -> None:
    mail = edit.step("mail")

    def version(*more: Any) -> tuple[Any, Any]:
        order = make_dataclass("Order", [("id", int), *more])

        async def refund(order: Any, reason: str = "") -> None:
            edit.stage.did(f"refund({order.id})")

        refund.__annotations__["order"] = order
        STEPS.pop("refund", None)
        return nl.action(refund, name="refund"), order(1)

    async def before() -> None:
        nl.on_failure(*version())
        await mail(1)
        await edit.stop()

    async def after() -> None:
        nl.on_failure(*version(("note", str, "")))
        await mail(1)
        raise ValueError("no")

    with pytest.raises(nl.RunFailed):
        edit.make(before, after)
    assert edit.stage.executed == ["refund(1)"]


@pytest.mark.parametrize("is_effect_next", [True, False])
@pytest.mark.parametrize("name", ["refund", "refund_all"])
def test_a_compensation_that_may_repeat_another_stops_the_run(
    edit: Edit, name: str, is_effect_next: bool
) -> None:
    """With other arguments, or by another action: before the next effect, and before the run fails."""
    mail, refund = edit.step("mail"), edit.step("refund")
    now = refund if name == "refund" else edit.step(name)

    async def before() -> None:
        nl.on_failure(refund, 1)
        await mail(1)
        await edit.stop()

    async def after() -> None:
        nl.on_failure(now, 2 if name == "refund" else 1)
        await mail(1)
        if is_effect_next:
            await mail(2)
        raise ValueError("no")

    told = edit.refused(before, after)
    assert "both would be called" in told
    assert 'nl.patched("' in told
    assert 'forgets=["refund"]' in told
    assert ("x: 1 → 2" in told) is (name == "refund")
    assert [one.kind for one in edit.store.load_journal("run").records].count(Kind.UNDO) == 1


def test_a_compensation_that_may_repeat_another_stops_the_run_when_nothing_else_is_on_record(
    edit: Edit,
) -> None:
    mail, refund = edit.step("mail"), edit.step("refund")

    async def before() -> None:
        nl.on_failure(refund, 1)
        while not any(one.kind is Kind.UNDO for one in edit.store.load_journal("run", since=0).records):  # noqa: ASYNC110
            await asyncio.sleep(0)  # it is written soon after, without a step
        await edit.stage.stop_here()

    async def after() -> None:
        nl.on_failure(refund, 2)
        await mail(1)

    assert "x: 1 → 2" in edit.refused(before, after)


def test_a_new_compensation_waits_until_another_branch_has_asked_for_the_one_on_record(edit: Edit) -> None:
    refund, look, pay = edit.step("refund"), edit.step("look", reads_only=True), edit.step("pay")

    async def before() -> None:
        nl.on_failure(refund, 1)
        await edit.stop()

    async def after() -> None:
        async def first() -> None:
            nl.on_failure(refund, 2)
            await pay(2)

        async def second() -> None:
            await look(1)
            nl.on_failure(refund, 1)

        await asyncio.gather(first(), second())
        raise ValueError("no")

    with pytest.raises(nl.RunFailed):
        edit.make(before, after)
    assert edit.stage.executed == ["look(1)", "pay(2)", "refund(2)", "refund(1)"]


def test_a_run_with_a_changed_compensation_completes_if_nothing_is_to_be_undone(edit: Edit) -> None:
    mail, refund = edit.step("mail"), edit.step("refund")

    async def before() -> None:
        nl.on_failure(refund, 1)
        await mail(1)
        await edit.stop()

    async def after() -> str:
        nl.on_failure(refund, 2)
        return str(await mail(1))

    assert edit.make(before, after) == "mail(1)"
    assert edit.stage.executed == []


@pytest.mark.parametrize("remedy", ["forgets", "patched"])
def test_a_changed_compensation_can_be_declared(edit: Edit, remedy: str) -> None:
    mail, refund = edit.step("mail"), edit.step("refund")
    if remedy == "forgets":
        edit.options["forgets"] = ["refund"]

    async def before() -> None:
        nl.on_failure(refund, 1)
        await mail(1)
        await edit.stop()

    async def after() -> None:
        is_new = remedy == "forgets" or nl.patched("refund")
        nl.on_failure(refund, 2 if is_new else 1)
        await mail(1)
        await mail(2)
        raise ValueError("no")

    with pytest.raises(nl.RunFailed):
        edit.make(before, after)
    undone = ["refund(2)", "refund(1)"] if remedy == "forgets" else ["refund(1)"]
    assert edit.stage.executed == ["mail(2)", *undone]


def test_a_compensation_that_the_code_registers_no_more_is_called_once(edit: Edit) -> None:
    mail, refund = edit.step("mail"), edit.step("refund")

    async def before() -> None:
        nl.on_failure(refund, 1)
        await mail(1)
        await edit.stop()

    async def after() -> None:
        await mail(1)
        await mail(2)
        raise ValueError("no")

    with pytest.raises(nl.RunFailed):
        edit.make(before, after)
    assert edit.stage.executed == ["mail(2)", "refund(1)"]


def test_a_child_whose_agent_was_renamed_is_refused_with_the_line_that_keeps_its_name(edit: Edit) -> None:
    async def idle() -> None:
        await nl.sleep(0)

    old, new = nl.agent(name="kid")(idle), nl.agent(name="kid2")(idle)

    async def before() -> None:
        await nl.spawn(old)
        await edit.stop()

    async def after() -> None:
        await nl.spawn(new)

    assert 'name="kid"' in edit.refused(before, after)


def test_the_loser_of_a_race_that_moved_is_not_taken_for_an_effect_that_was_passed_over(edit: Edit) -> None:
    mail, begun = edit.step("mail"), asyncio.Event()

    async def never(x: int) -> None:
        begun.set()
        await asyncio.Event().wait()

    loser, winner = nl.action(never, name="loser"), nl.decision(begun.wait, name="winner")

    async def race() -> None:
        tasks = [asyncio.ensure_future(loser(1)), asyncio.ensure_future(winner())]
        _, rest = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)

    async def before() -> None:
        await race()
        await mail(1)
        await edit.stop()

    async def after() -> None:
        await asyncio.create_task(race())
        await mail(1)
        await mail(2)

    edit.make(before, after)
    assert edit.stage.executed == ["mail(2)"]


def test_every_name_of_our_own_steps_is_known_as_no_effect() -> None:
    engine = Path(lookup.__file__).parents[1]
    text = "\n".join(path.read_text("utf-8") for path in engine.rglob("*.py"))
    names = set(re.findall(r'(?:Builtin\(execution, |next_position\()"([a-z_]+)"', text))
    assert {"sleep", "repair_history", "hold"} <= names
    assert [name for name in sorted(names) if lookup.is_effect_name(name) or lookup.is_unknown(name)] == []
