"""The gate: each verdict on each kind of step, what is recorded, and that a replay asks nobody."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest

import ninelives as nl
from ninelives.core.errors import PolicyFailed
from ninelives.core.governance.verdicts import Allow, Ask, Call, Deny, Judgement, Rewrite
from ninelives.core.journal.replay import read_body
from ninelives.core.model.inbox import ItemKind, ItemState
from ninelives.core.model.run import Kind, State
from tests.governance.small_governor import SmallGovernor, first_of, governed, kinds_of, records_of
from tests.replay.lifetimes import QuickStore, run_async

DID: list[Any] = []
KINDS = ("plain", "once", "keyed", "shared")


@nl.action(name="plain")
async def plain(cents: int, to: str = "ada") -> str:
    DID.append(("plain", cents, nl.key()))
    return f"{cents} to {to}"


@nl.action(name="once", resumable=False)
async def once(cents: int, to: str = "ada") -> str:
    DID.append(("once", cents, nl.key()))
    return f"{cents} to {to}"


@nl.action(name="keyed", resumable=False, key="pay:{cents}")
async def keyed(cents: int, to: str = "ada") -> str:
    DID.append(("keyed", cents, nl.key()))
    return f"{cents} to {to}"


@nl.action(name="shared", key="share:{cents}", identity="cents")
async def shared(cents: int, to: str = "ada") -> str:
    DID.append(("shared", cents, nl.key()))
    return f"{cents} to {to}"


@nl.action(name="threaded")
def threaded(cents: int) -> int:
    DID.append(("threaded", cents, nl.key()))
    return cents


STEPS: dict[str, Any] = {"plain": plain, "once": once, "keyed": keyed, "shared": shared}


@nl.agent(name="gate.pays")
async def pays(kind: str, cents: int) -> str:
    try:
        return str(await STEPS[kind](cents))
    except nl.Denied as error:
        return f"denied: {error}"


@pytest.fixture(autouse=True)
def _nothing_done() -> None:
    DID.clear()


def perform(store: Any, governor: Any, agent: Any = pays, *args: Any) -> Any:
    """Start the run, work until nothing can be worked on, and return its row."""

    async def main() -> Any:
        async with governed(store, governor) as rt:
            await rt.start(agent, *args, id="run")
            await rt.work(until_idle=True)
            return store.read_run("run")

    return run_async(main)


def result(store: Any, governor: Any = None) -> Any:
    """Work to the end; return the result."""

    async def main() -> Any:
        async with governed(store, governor) as rt:
            await rt.work(until_idle=True)
            return await (await rt.get("run")).result(timeout=10)

    return run_async(main)


def again(store: Any, governor: Any) -> None:
    """Have the run, which waits for a signal at its end, executed again from its journal."""

    async def main() -> Any:
        async with governed(store, governor) as rt:
            await (await rt.get("run")).signal("go")
            await rt.work(until_idle=True)

    run_async(main)


@pytest.mark.parametrize("kind", KINDS)
def test_an_allowed_call_says_so_in_its_first_record_and_needs_no_record_more(kind: str) -> None:
    free, store, governor = QuickStore(), QuickStore(), SmallGovernor()
    perform(free, None, pays, kind, 5)
    perform(store, governor, pays, kind, 5)
    assert result(store, governor) == "5 to ada"
    assert kinds_of(store) == kinds_of(free)
    said = read_body(first_of(store, kind)).j
    assert said is not None
    assert (said.v, said.p, said.r) == ("a", "digest-1", (f"rule-{kind}",))
    assert str(said) == f"allowed by rule rule-{kind} of policy digest-1"
    assert len(governor.judged) == 1
    assert governor.ends == [(kind, "")]


@pytest.mark.parametrize("kind", KINDS)
def test_a_denied_call_is_not_carried_out_and_the_agent_gets_the_reason(kind: str) -> None:
    store, governor = QuickStore(), SmallGovernor({kind: Deny("too much")})
    perform(store, governor, pays, kind, 5)
    assert "too much" in result(store, governor)
    assert DID == []
    failure = next(one for one in records_of(store) if one.kind is Kind.FAILURE)
    said = read_body(failure).j
    assert said is not None
    assert (said.v, said.why) == ("d", "too much")
    assert governor.ends == [(kind, "Denied")]


@pytest.mark.parametrize("kind", KINDS)
def test_a_rewritten_call_gets_the_other_arguments_and_their_key(kind: str) -> None:
    def capped(call: Call) -> Allow | Rewrite:
        return Rewrite({"cents": 100}, "at most 100") if call.args["cents"] > 100 else Allow()

    store, governor = QuickStore(), SmallGovernor({kind: capped})
    perform(store, governor, pays, kind, 500)
    assert result(store, governor) == "100 to ada"
    ((_, cents, key),) = DID
    assert cents == 100
    if kind in ("keyed", "shared"):
        assert key == f"{'pay' if kind == 'keyed' else 'share'}:int=100"
    body = read_body(first_of(store, kind))
    assert body.j is not None
    assert bytes(body.j.args["cents"]) == b"100"
    assert body.a == {"cents": "500"}  # the record keeps the call as the code makes it


@pytest.mark.parametrize("kind", KINDS)
def test_an_asked_call_waits_for_a_person_and_their_yes_counts(kind: str) -> None:
    store, governor = QuickStore(), SmallGovernor({kind: Ask(to="role:ops", why="It is large.")})
    row = perform(store, governor, pays, kind, 5)
    assert row.state is State.CHECKPOINTED
    (item,) = store.list_inbox(run="run")
    assert item.to == "role:ops"
    answer(store, governor, lambda one: one.approve(by="eve"))
    assert result(store, governor) == "5 to ada"
    assert len(DID) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_person_may_say_no_to_what_a_policy_asks(kind: str) -> None:
    store, governor = QuickStore(), SmallGovernor({kind: Ask()})
    perform(store, governor, pays, kind, 5)
    answer(store, governor, lambda one: one.deny(by="eve", note="never"))
    assert "never" in result(store, governor)
    assert DID == []


def answer(store: Any, governor: Any, give: Any) -> None:
    """Answer the one open item."""

    async def main() -> None:
        async with governed(store, governor) as rt:
            (item,) = await rt.inbox("run")
            await give(item)
            await rt.work(until_idle=True)

    run_async(main)


@pytest.mark.parametrize("verdict", [Deny, Ask, Allow])
def test_the_reason_of_a_verdict_has_no_text_that_was_revealed(verdict: Any) -> None:
    plain = nl.Secret("canary-of-a-reason").reveal()
    made = Ask(why=plain) if verdict is Ask else verdict(plain)
    store = QuickStore()
    perform(store, SmallGovernor({"once": made}), pays, "once", 5)
    kept = [record.body for record in records_of(store)]
    kept += [item.body for item in store.list_inbox(run="run", answered=True)]
    assert not any(b"canary" in body for body in kept)


def test_several_different_people_must_agree() -> None:
    store, governor = QuickStore(), SmallGovernor({"once": Ask(approvals=2)})
    perform(store, governor, pays, "once", 5)
    answer(store, governor, lambda one: one.approve(by="eve"))
    assert DID == []
    answer(store, governor, lambda one: one.approve(by="eve"))
    assert DID == []  # the same person twice is one
    (item,) = store.list_inbox(run="run")
    assert b"another person must" in item.body
    answer(store, governor, lambda one: one.approve(by="ada"))
    assert result(store, governor) == "5 to ada"


def test_an_answer_that_does_not_count_leaves_the_request_open() -> None:
    store, governor = QuickStore(), SmallGovernor({"once": Ask(to="role:ops")})
    governor.refuses["mallory"] = "mallory has no role 'ops'"
    perform(store, governor, pays, "once", 5)
    answer(store, governor, lambda one: one.approve(by="mallory"))
    assert DID == []
    (item,) = store.list_inbox(run="run")
    assert b"mallory has no role" in item.body
    answer(store, governor, lambda one: one.approve(by="ada"))
    assert len(DID) == 1


@nl.action(name="refusing", key="refuse:{cents}")
async def refusing(cents: int) -> None:
    DID.append(("refusing", cents, nl.key()))
    raise nl.Permanent("no")


@nl.agent(name="gate.insists")
async def insists(cents: int) -> int:
    for _ in range(3):
        with suppress(nl.Permanent):
            await refusing(cents)
    return cents


@nl.agent(name="gate.spawns")
async def spawns(cents: int) -> int:
    for _ in range(3):
        await nl.spawn(pays, "plain", cents)
    return cents


@pytest.mark.parametrize(("agent", "action"), [(insists, "refusing"), (spawns, "gate.pays")])
def test_one_yes_is_for_one_call_though_the_next_one_is_the_same(agent: Any, action: str) -> None:
    store, governor = QuickStore(), SmallGovernor({action: Ask()})
    perform(store, governor, agent, 5)
    for number in range(3):
        states = [item.state for item in store.list_inbox(run="run", answered=True)]
        assert len(states) == number + 1, "each call asks a person"
        answer(store, governor, lambda one: one.approve(by="eve"))
    assert result(store, governor) == 5
    assert len(DID) == 3


def test_an_approval_of_another_policy_is_void() -> None:
    store, governor = QuickStore(), SmallGovernor({"once": Ask()})
    perform(store, governor, pays, "once", 5)

    async def main() -> None:
        async with nl.Runtime(store) as rt:  # answered while nobody works
            (item,) = await rt.inbox("run")
            await item.approve(by="eve")

    run_async(main)
    later = SmallGovernor({"once": Ask()}, digest="digest-2")

    async def work() -> None:
        async with governed(store, later) as rt:
            await rt.work(until_idle=True)

    run_async(work)
    assert DID == []
    states = [item.state for item in store.list_inbox(run="run", answered=True)]
    assert sorted(states) == [ItemState.ANSWERED, ItemState.OPEN]
    answer(store, later, lambda one: one.approve(by="eve"))
    assert len(DID) == 1


@nl.action(name="approved", resumable=False, approval=nl.Approval(to="boss"))
async def approved(cents: int) -> int:
    DID.append(("approved", cents, nl.key()))
    return cents


@nl.action(name="listed", resumable=False, retry=nl.Retry(attempts=1))
async def listed(cents: list[int]) -> str:
    DID.append(("listed", *cents))
    return "listed"


@nl.action(name="resumed", approval=True)
async def resumed(cents: list[int]) -> str:
    DID.append(("resumed", *cents))
    return "resumed"


async def _changing(call: Any, ticks: int) -> str:
    """Call an action, and change its argument while the call waits."""
    cents = [5]
    branch = asyncio.ensure_future(call(cents))
    for _ in range(ticks):
        await asyncio.sleep(0)
        cents[0] = 90_000
    try:
        return str(await branch)
    except (nl.Denied, nl.NotDone) as error:
        return type(error).__name__


def test_arguments_that_change_while_the_start_is_recorded_are_not_carried_out() -> None:
    @nl.agent(name="gate.changing")
    async def changing() -> str:
        return await _changing(listed, 30)

    def judge(call: Call) -> Any:
        return Deny("too much") if call.args["cents"][0] > 10 else Allow()

    store, governor = QuickStore(), SmallGovernor({"listed": judge})
    perform(store, governor, changing)
    assert result(store, governor) == "NotDone"
    assert DID == []


def test_arguments_that_change_while_a_person_is_asked_are_asked_again() -> None:
    @nl.agent(name="gate.asked")
    async def asked() -> str:
        return await _changing(resumed, 3_000)

    async def main() -> list[Any]:
        async with nl.Runtime(QuickStore()) as rt:
            await rt.start(asked, id="run")
            working = asyncio.ensure_future(rt.work(until_idle=True))
            while not (items := await rt.inbox("run")):  # noqa: ASYNC110 (an inbox has no event)
                await asyncio.sleep(0)
            await items[0].approve(by="eve")
            await working
            return list(await rt.inbox("run"))

    assert len(run_async(main)) == 1
    assert DID == []


def test_if_both_ask_both_must_be_answered() -> None:
    @nl.agent(name="gate.both")
    async def both(cents: int) -> int:
        return await approved(cents)

    store, governor = QuickStore(), SmallGovernor({"approved": Ask(to="role:ops")})
    perform(store, governor, both, 5)
    assert [item.to for item in store.list_inbox(run="run")] == ["role:ops"]
    answer(store, governor, lambda one: one.approve(by="eve"))
    assert DID == []
    assert [item.to for item in store.list_inbox(run="run")] == ["boss"]
    answer(store, governor, lambda one: one.approve(by="bob"))
    assert result(store, governor) == 5
    assert len(DID) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_replay_asks_nobody(kind: str) -> None:
    @nl.agent(name="gate.parks")
    async def parks(cents: int) -> str:
        value = await STEPS[kind](cents)
        await nl.receive("go")
        return str(value)

    store = QuickStore()
    perform(store, SmallGovernor(), parks, 5)
    later = SmallGovernor({kind: Deny("never again")})
    again(store, later)
    assert result(store, later) == "5 to ada"
    assert later.judged == []
    assert len(DID) == 1


@pytest.mark.parametrize("fault", ["error", "raises", "nothing", "misfit"])
@pytest.mark.parametrize("kind", KINDS)
def test_what_cannot_be_judged_stops_the_run_for_a_person(kind: str, fault: str) -> None:
    class Faulty(SmallGovernor):
        is_whole = False

        def judge(self, step: Any, call: Call) -> Judgement:
            if self.is_whole:
                return super().judge(step, call)
            if fault == "raises":
                raise ZeroDivisionError("division by zero")
            if fault == "nothing":
                return None  # type: ignore[return-value]
            if fault == "misfit":
                return Judgement(Rewrite({"cents": "many"}))
            return Judgement(Deny("?"), error="rule large: 'cents' is None")

    store, governor = QuickStore(), Faulty()
    row = perform(store, governor, pays, kind, 5)
    assert row.state is State.ESCALATED
    (item,) = store.list_inbox(run="run")
    assert item.kind is ItemKind.POLICY
    assert DID == []
    governor.is_whole = True
    answer(store, governor, lambda one: one.retry(by="eve"))
    assert result(store, governor) == "5 to ada"


@pytest.mark.parametrize("rule", [Allow(), Allow("noted"), Deny("no"), Rewrite({"cents": 1}), None])
@pytest.mark.parametrize("kind", KINDS)
def test_a_policy_is_asked_once_about_a_call_whatever_it_says(kind: str, rule: Any) -> None:
    def judge(call: Call) -> Any:
        if rule is None or call.args["cents"] == 1:
            raise ValueError("a rule failed")
        return rule

    governor = SmallGovernor({kind: judge})
    perform(QuickStore(), governor, pays, kind, 50)
    assert [call.action for call in governor.judged] == [kind]


def test_the_run_can_be_failed_where_it_cannot_be_judged() -> None:
    class Faulty(SmallGovernor):
        def judge(self, step: Any, call: Call) -> Judgement:
            raise ZeroDivisionError("division by zero")

    store, governor = QuickStore(), Faulty()
    perform(store, governor, pays, "once", 5)
    answer(store, governor, lambda one: one.fail(by="eve"))
    with pytest.raises(nl.RunFailed, match="could not be judged") as raised:
        result(store, governor)
    assert isinstance(raised.value.__cause__, PolicyFailed) or "PolicyFailed" in str(raised.value)


def test_a_plain_function_gets_rewritten_arguments_in_its_thread() -> None:
    @nl.agent(name="gate.thread")
    def thread(cents: int) -> int:
        return threaded(cents)

    store, governor = QuickStore(), SmallGovernor({"threaded": Rewrite({"cents": 7})})
    perform(store, governor, thread, 5)
    assert result(store, governor) == 7
