"""What changes between the verdict and the body: arguments, the policy, a halt. Nothing else than what was
judged is carried out."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import ninelives as nl
from ninelives.core.governance.accounts import Reserve
from ninelives.core.governance.verdicts import Allow, Call, Deny, Rewrite
from ninelives.core.model.document import HALTS
from ninelives.core.model.inbox import ItemKind
from ninelives.core.model.run import Kind, State
from ninelives.engine.governor import Hold
from ninelives.engine.spec.registry import Step
from tests.governance.small_governor import SmallGovernor, governed, kinds_of
from tests.governance.test_budget_runs import RUN, Scene
from tests.governance.test_gate_holds import until
from tests.governance.test_gate_stores import halt
from tests.replay.lifetimes import QuickStore, Stage, prove_gone, run_async

STAGE = Stage()
SENT: list[list[str]] = []
BEGAN: list[Any] = []
NOW: dict[str, asyncio.Event] = {}
INSIDE, OUTSIDE = "ada@example.com", "eve@example.org"


def fail_once(to: list[str], fails: bool) -> None:
    SENT.append(list(to))
    if fails and len(SENT) == 1:
        NOW["sent"].set()
        raise nl.Transient("again")


@nl.action(name="changes.mail", cost=nl.Cost(tokens=1))
async def mail(to: list[str], fails: bool = False) -> None:
    fail_once(to, fails)


@nl.action(name="changes.keyed", cost=nl.Cost(tokens=1), key="mail:{fails}", identity="fails")
async def keyed(to: list[str], fails: bool = False) -> None:
    fail_once(to, fails)


@nl.action(name="changes.approved", approval=True)
async def approved(to: list[str], fails: bool = False) -> None:
    fail_once(to, fails)


@nl.agent(name="changes.child")
async def child(to: list[str]) -> None:
    SENT.append(to)


async def spawned(to: list[str], fails: bool = False) -> None:
    await nl.spawn(child, to)


WAYS: dict[str, Any] = {"plain": mail, "keyed": keyed, "approved": approved, "spawn": spawned}


@nl.agent(name="changes.sends")
async def sends(way: str, fails: bool) -> str:
    to, sent = [INSIDE], asyncio.Event()
    NOW["sent"] = sent

    async def changes() -> None:
        if fails:
            await sent.wait()
        else:
            await asyncio.sleep(0)
        to.append(OUTSIDE)

    try:
        await nl.gather(WAYS[way](to, fails), changes())
    except (nl.NotDone, nl.UsageError) as error:
        return str(error)
    return "sent"


@pytest.fixture(autouse=True)
def _fresh() -> None:
    SENT.clear()
    BEGAN.clear()
    STAGE.__init__()  # type: ignore[misc]


POLICY = """
[[rule]]
id = "inside"
actions = ["changes.mail", "changes.keyed", "changes.child"]
kinds = ["action", "spawn"]
when = "any(not endswith(one, '@example.com') for one in to)"
do = "deny"
[[limit]]
id = "few"
max_children = 5
"""


@pytest.mark.parametrize(
    ("way", "fails"), [("plain", False), ("plain", True), ("keyed", False), ("keyed", True), ("spawn", False)]
)
def test_arguments_that_change_after_the_verdict_are_not_carried_out(
    tmp_path: Path, way: str, fails: bool
) -> None:
    scene = Scene(tmp_path, RUN)
    scene.policy.write_text(scene.policy.read_text() + POLICY, encoding="utf-8")
    scene.perform(sends, way, fails)
    assert "changed" in scene.result()
    assert [[INSIDE]] * fails == SENT


def test_arguments_that_change_after_an_approval_are_not_carried_out_by_a_later_attempt() -> None:
    store = QuickStore()

    async def main() -> str:
        async with nl.Runtime(store) as rt:
            run = await rt.start(sends, "approved", True)
            await rt.work(until_idle=True)
            (item,) = await rt.inbox(run.id)
            await item.approve(by="ada")
            await rt.work(until_idle=True)
            return str(await run.result(timeout=10))

    assert "changed" in run_async(main)
    assert SENT == [[INSIDE]]


@nl.action(name="changes.pay", resumable=False, verify=lambda cents, key: nl.NotHappened())
async def pay(cents: int) -> int:
    BEGAN.append(cents)
    await STAGE.stop_here()
    return cents


@nl.agent(name="changes.pays")
async def pays(cents: int) -> int:
    return await pay(cents)


def at_most(cents: int) -> Callable[[Call], Allow | Rewrite]:
    return lambda call: Rewrite({"cents": cents}, "") if call.args["cents"] > cents else Allow()


@pytest.mark.parametrize("most", [500, 100])
def test_a_further_start_keeps_its_arguments_only_if_the_policy_of_now_does(most: int) -> None:
    store = QuickStore()

    async def first() -> None:
        STAGE.reached = asyncio.Event()
        async with governed(store, SmallGovernor({"changes.pay": at_most(500)})) as rt:
            await rt.start(pays, 90_000, id="run")
            working = asyncio.create_task(rt.work())
            await STAGE.reached.wait()
            working.cancel()

    async def second() -> list[ItemKind]:
        async with governed(store, SmallGovernor({"changes.pay": at_most(most)}, digest="digest-2")) as rt:
            await rt.work(until_idle=True)
            return [item.kind for item in await rt.inbox("run")]

    run_async(first)
    STAGE.is_second = True
    prove_gone(store)
    asked = run_async(second)
    row = store.read_run("run")
    assert row is not None
    if most == 500:
        assert (BEGAN, row.state, asked) == ([500, 500], State.COMPLETED, [])
    else:
        assert (BEGAN, row.state, asked) == ([500], State.ESCALATED, [ItemKind.POLICY])


@nl.action(name="changes.spend", cost=lambda tokens: nl.Cost(tokens=tokens))
async def spend(tokens: int) -> None:
    BEGAN.append(tokens)


@nl.action(name="changes.long", cost=nl.Cost(tokens=0))
async def long() -> None:
    NOW["began"].set()
    await NOW["end"].wait()


@nl.agent(name="changes.two")
async def two() -> None:
    await nl.gather(spend(2000), long())


def waits_of(store: QuickStore) -> str:
    row = store.read_run("run")
    return row.waits if row is not None else ""


def test_a_call_that_a_person_lets_pass_its_budget_is_still_held_by_a_halt(tmp_path: Path) -> None:
    scene = Scene(tmp_path, RUN + 'on="escalate"\nto="ada"')

    async def main() -> None:
        NOW.update(began=asyncio.Event(), end=asyncio.Event())
        async with scene.runtime() as rt:
            await rt.start(two, id="run")
            working = asyncio.create_task(rt.work())
            await NOW["began"].wait()  # the other branch keeps the run in memory
            await until(lambda: bool(scene.store.list_inbox(run="run")))
            await rt.halt(agent="changes.two", reason="a fault", by="eve")
            governor: Any = rt.governing.governor
            await until(lambda: governor.halts_version > 0)
            (item,) = await rt.inbox("run")
            await item.approve(by="ada")
            await until(lambda: Kind.ANSWER in kinds_of(scene.store))
            NOW["end"].set()
            await until(lambda: "until the halt" in waits_of(scene.store) or bool(BEGAN))
            working.cancel()

    run_async(main)
    assert BEGAN == []


class Reading(SmallGovernor):
    """A governor that reads a halt on another thread, just after it has said that nothing is held."""

    left = 1

    def held(self, step: Step, call: Call) -> Hold | None:
        found = super().held(step, call)
        self.left -= 1
        if not self.left:
            halt(self.store, "changes.once", "changes.spend")
            document = self.store.read_documents(HALTS)[0]
            self.version, self.halted = document.version, set(json.loads(document.body).split())
        return found


@nl.action(name="changes.once", resumable=False)
async def once(tokens: int) -> None:
    BEGAN.append(tokens)


@nl.agent(name="changes.either")
async def either(way: str) -> None:
    await {"once": once, "spend": spend}[way](7)


@pytest.mark.parametrize(("way", "questions"), [("once", 2), ("spend", 1)])
def test_a_halt_that_is_read_just_after_the_last_question_refuses_the_start(way: str, questions: int) -> None:
    store, governor = QuickStore(), Reading()
    governor.store, governor.left = store, questions
    governor.estimates = {"changes.spend": (Reserve("budget/a", {"tokens": 7}),)}

    async def main() -> None:
        async with governed(store, governor) as rt:
            await rt.start(either, way, id="run")
            await rt.work(until_idle=True)

    run_async(main)
    assert BEGAN == []
    assert "until the halt" in waits_of(store)


@nl.agent(name="changes.waits")
async def waits() -> None:
    BEGAN.append("child")
    await nl.receive("never")


@nl.action(name="changes.fails", retry=nl.Retry(attempts=1))
async def fails() -> None:
    if STAGE.is_second:
        return
    raise ValueError("not yet")


@nl.agent(name="changes.parent")
async def parent() -> str:
    try:
        await nl.spawn(waits)
    except nl.Denied as no:
        return no.what
    await nl.sleep(0.01)
    await fails()
    return "done"


def test_a_child_that_a_retry_starts_again_is_judged_again() -> None:
    store = QuickStore()

    async def lives(governor: SmallGovernor) -> list[str]:
        async with governed(store, governor) as rt:
            run = await rt.start(parent, id="run")
            if STAGE.is_second:
                await run.retry()
            row = store.read_run("run")
            while row is not None and not row.state.is_final:
                await rt.work(until_idle=True)
                row = store.read_run("run")
            return [row.id for row in await rt.list()]

    run_async(lambda: lives(SmallGovernor()))
    STAGE.is_second = True
    governor = SmallGovernor({"changes.waits": Deny("no children now")}, digest="digest-2")
    known = run_async(lambda: lives(governor))
    assert "changes.waits" in [call.action for call in governor.judged]
    assert sorted(known) == ["run", "run/changes.waits-1"]
