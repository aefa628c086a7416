"""The gate: calls that are held, spawns, compensations, attempts, and calls that write no record."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

import ninelives as nl
from ninelives.core.governance.verdicts import Allow, Ask, Call, Deny, Rewrite
from ninelives.core.journal.replay import read_body
from ninelives.core.model.inbox import ItemKind
from ninelives.core.model.run import Kind, State
from ninelives.engine.hooks import CallDenied, Observer
from ninelives.engine.step import holds
from ninelives.runtime.runtime import ProcessOptions
from ninelives.views import records_text
from tests.governance.small_governor import SmallGovernor, first_of, governed, records_of
from tests.replay.lifetimes import QuickStore, run_async

DID: list[Any] = []


@nl.action(name="h_plain")
async def plain(cents: int) -> int:
    DID.append(cents)
    return cents


@nl.action(name="h_once", resumable=False)
async def once(cents: int) -> int:
    DID.append(cents)
    return cents


@nl.action(name="h_keyed", key="k:{cents}")
async def keyed(cents: int) -> int:
    DID.append(cents)
    return cents


STEPS: dict[str, Any] = {"h_plain": plain, "h_once": once, "h_keyed": keyed}


@pytest.fixture(autouse=True)
def _nothing_done() -> None:
    DID.clear()


async def until(check: Callable[[], bool]) -> None:
    """Wait until a condition holds."""
    async with asyncio.timeout(10):
        while not check():  # noqa: ASYNC110
            await asyncio.sleep(0.002)


def perform(store: Any, governor: Any, agent: Any, *args: Any) -> Any:
    """Start the run, work until nothing can be worked on, and return its result if it has ended."""

    async def main() -> Any:
        async with governed(store, governor) as rt:
            run = await rt.start(agent, *args, id="run")
            await rt.work(until_idle=True)
            row = store.read_run("run")
            return await run.result(timeout=5) if row.state.is_final else row

    return run_async(main)


@pytest.mark.parametrize("kind", STEPS)
def test_a_held_call_parks_its_run_and_says_what_it_waits_for(kind: str) -> None:
    @nl.agent(name="gate.held")
    async def held() -> int:
        return int(await STEPS[kind](5))

    store, governor = QuickStore(), SmallGovernor()
    governor.halted = {kind}
    row = perform(store, governor, held)
    assert row.state is State.CHECKPOINTED
    assert row.waits == f"until the halt of {kind} is lifted"
    assert row.due_ms is not None
    assert DID == []
    assert governor.judged == []  # a halt comes before the policy


@pytest.mark.parametrize("kind", STEPS)
def test_a_held_call_goes_on_when_what_governs_changes(kind: str) -> None:
    @nl.agent(name="gate.lifted")
    async def lifted() -> int:
        beside = asyncio.create_task(asyncio.to_thread(gone.wait))  # so that the run stays in memory
        value = int(await STEPS[kind](5))
        await beside
        return value

    import threading

    gone = threading.Event()
    store, governor = QuickStore(), SmallGovernor()
    governor.halted = {kind}

    async def main() -> Any:
        async with governed(store, governor) as rt:
            run = await rt.start(lifted, id="run")
            working = asyncio.create_task(rt.work())
            await until(
                lambda: bool(rt.executions) and any(one.waits_for_news for one in rt.executions.values())
            )
            assert DID == []
            governor.halted = set()
            rt.governing.changed()
            await until(lambda: DID == [5])
            gone.set()
            value = await run.result(timeout=5)
            working.cancel()
            return value

    assert run_async(main) == 5


def test_a_held_call_is_asked_again_at_its_time() -> None:
    @nl.agent(name="gate.due")
    async def due() -> int:
        return await once(5)

    class Until(SmallGovernor):
        def held(self, step: Any, call: Call) -> Any:
            if self.store.now_ms() >= (self.until_ms or 0):
                self.halted = set()
            return super().held(step, call)

    store, governor = QuickStore(), Until()
    governor.store, governor.halted, governor.until_ms = store, {"h_once"}, store.now_ms() + 200
    assert perform(store, governor, due).due_ms <= governor.until_ms

    async def main() -> Any:
        async with governed(store, governor) as rt:
            working = asyncio.create_task(rt.work())
            value = await (await rt.get("run")).result(timeout=10)
            working.cancel()
            return value

    assert run_async(main) == 5
    assert store.now_ms() >= governor.until_ms


def test_a_body_is_not_tried_again_while_it_is_held() -> None:
    tries: list[int] = []
    store, governor = QuickStore(), SmallGovernor()

    @nl.action(name="failing", retry=nl.Retry(attempts=3, base_seconds=0.001))
    async def failing() -> int:
        tries.append(len(tries))
        if len(tries) == 1:
            governor.halted = {"failing"}
            raise nl.Transient("again")
        return len(tries)

    @nl.agent(name="gate.retries")
    async def retries() -> int:
        return await failing()

    row = perform(store, governor, retries)
    assert (row.state, row.waits) == (State.CHECKPOINTED, "until the halt of failing is lifted")
    assert tries == [0]


def test_a_call_that_is_cancelled_while_it_is_held_is_not_carried_out_on_replay() -> None:
    @nl.agent(name="gate.cancelled")
    async def cancelled() -> str:
        try:
            async with nl.timeout(0.05):
                await once(5)
        except TimeoutError:
            await nl.receive("go")
            return "too late"
        return "done"

    store, governor = QuickStore(), SmallGovernor()
    governor.halted = {"h_once"}

    async def first() -> None:
        async with governed(store, governor) as rt:
            await rt.start(cancelled, id="run")
            working = asyncio.create_task(rt.work())
            await until(lambda: (row := store.read_run("run")) is not None and "signal" in row.waits)
            working.cancel()

    async def second() -> Any:
        async with governed(store, SmallGovernor()) as rt:
            run = await rt.get("run")
            await run.signal("go")
            await rt.work(until_idle=True)
            return await run.result(timeout=5)

    run_async(first)
    assert run_async(second) == "too late"
    assert DID == []


# Spawns --------------------------------------------------------------------------------------------


@nl.agent(name="gate.child")
async def child(cents: int) -> int:
    return cents


@nl.agent(name="gate.parent")
async def parent(cents: int) -> Any:
    try:
        born = await nl.spawn(child, cents)
    except nl.Denied as error:
        return f"denied: {error}"
    return await born.result()


def test_a_spawn_is_judged_with_its_depth() -> None:
    store, governor = QuickStore(), SmallGovernor()

    @nl.agent(name="gate.grandparent")
    async def grandparent() -> Any:
        return await (await nl.spawn(parent, 5)).result()

    assert perform(store, governor, grandparent) == 5
    spawns = [(one.action, one.kind, one.depth) for one in governor.judged]
    assert spawns == [("gate.parent", "spawn", 0), ("gate.child", "spawn", 1)]


def test_a_denied_spawn_creates_no_child() -> None:
    store, governor = QuickStore(), SmallGovernor({"gate.child": Deny("no children")})
    assert "no children" in perform(store, governor, parent, 5)
    assert store.read_run("run/gate.child-1") is None


def test_a_rewritten_spawn_gives_the_child_other_arguments() -> None:
    store, governor = QuickStore(), SmallGovernor({"gate.child": Rewrite({"cents": 1})})
    assert perform(store, governor, parent, 5) == 1
    body = read_body(first_of(store, "spawn:gate.child"))
    assert body.j is not None
    assert (body.j.v, bytes(body.j.args["cents"]), body.a) == ("r", b"1", {"cents": "5"})


def test_a_spawn_may_need_a_person() -> None:
    store, governor = QuickStore(), SmallGovernor({"gate.child": Ask(to="role:ops")})
    perform(store, governor, parent, 5)

    async def main() -> Any:
        async with governed(store, governor) as rt:
            (item,) = await rt.inbox("run")
            await item.approve(by="eve")
            await rt.work(until_idle=True)
            return await (await rt.get("run")).result(timeout=5)

    assert run_async(main) == 5


# Compensations -------------------------------------------------------------------------------------


def test_a_compensation_is_judged_as_one() -> None:
    @nl.agent(name="gate.undoes")
    async def undoes() -> None:
        nl.on_failure(plain, 1)
        nl.on_failure(once, 2)
        raise ValueError("it went wrong")

    store, governor = QuickStore(), SmallGovernor({"h_once": Deny("not undone")})
    with pytest.raises(nl.RunFailed):
        perform(store, governor, undoes)
    assert [(one.action, one.kind) for one in governor.judged] == [
        ("h_once", "compensation"),
        ("h_plain", "compensation"),
    ]
    assert DID == [1]  # one that is denied does not keep the others from running
    assert any(one.kind is Kind.FAILURE for one in records_of(store))


# Calls that write no record -------------------------------------------------------------------------


@nl.action(name="inner")
async def inner(cents: int) -> int:
    DID.append(cents)
    return cents


@nl.action(name="inner_plain")
def inner_plain(cents: int) -> int:
    DID.append(cents)
    return cents


@nl.action(name="outer")
async def outer(cents: int) -> int:
    return await inner(cents)


@nl.action(name="outer_plain")
def outer_plain(cents: int) -> int:
    return inner_plain(cents)


@nl.action(name="outer_raw")
async def outer_raw(cents: int) -> int:
    return await once.raw(cents)


OUTER: dict[str, tuple[Any, str]] = {
    "outer": (outer, "inner"),
    "outer_plain": (outer_plain, "inner_plain"),
    "outer_raw": (outer_raw, "h_once"),
}


@nl.agent(name="gate.nests")
async def nests(kind: str) -> Any:
    step = OUTER[kind][0]
    try:
        return await (asyncio.to_thread(step, 5) if kind == "outer_plain" else step(5))
    except (nl.UsageError, nl.Denied) as error:
        return f"{type(error).__name__}: {error}"


@pytest.mark.parametrize("kind", OUTER)
@pytest.mark.parametrize(
    ("verdict", "said"),
    [
        (Deny("never"), "Denied: the policy denies"),
        (Ask(), "a person must approve it"),
        (Rewrite({"cents": 1}), "its arguments must be rewritten"),
    ],
)
def test_a_call_that_writes_no_record_is_refused_unless_it_is_allowed(
    kind: str, verdict: Any, said: str
) -> None:
    store, governor = QuickStore(), SmallGovernor({OUTER[kind][1]: verdict})
    assert said in str(perform(store, governor, nests, kind))
    assert DID == []
    assert ((OUTER[kind][1], "Denied") in governor.ends) is isinstance(verdict, Deny), "trips count it"


def test_an_undecorated_call_is_judged_with_its_key() -> None:
    @nl.action(name="h_paid", key="pay:{cents}", resumable=False)
    async def paid(cents: int) -> None:
        DID.append(cents)

    @nl.agent(name="gate.pays_raw")
    async def pays_raw() -> None:
        await paid.raw(4)
        with pytest.raises(nl.Denied):
            await paid.raw(5)

    governor = SmallGovernor({"h_paid": lambda call: Deny("no") if call.key == "pay:int=5" else Allow()})
    perform(QuickStore(), governor, pays_raw)
    assert DID == [4]


@pytest.mark.parametrize("kind", OUTER)
def test_a_call_that_writes_no_record_passes_if_it_is_allowed(kind: str) -> None:
    store, governor = QuickStore(), SmallGovernor()
    assert perform(store, governor, nests, kind) == 5
    assert OUTER[kind][1] in [one.action for one in governor.judged]


@pytest.mark.parametrize("kind", OUTER)
def test_a_call_that_writes_no_record_is_refused_while_it_is_held(kind: str) -> None:
    store, governor = QuickStore(), SmallGovernor()
    governor.halted = {OUTER[kind][1]}
    assert "it would have to wait until the halt" in str(perform(store, governor, nests, kind))
    assert DID == []


def test_outside_a_run_an_undecorated_step_is_an_ordinary_function() -> None:
    assert asyncio.run(once.raw(3)) == 3
    assert inner_plain.raw(4) == 4


# What is seen ---------------------------------------------------------------------------------------


def test_a_record_says_how_its_call_was_judged() -> None:
    @nl.agent(name="gate.shown")
    async def shown() -> int:
        return await once(5)

    store = QuickStore()
    perform(store, SmallGovernor(), shown)
    (line,) = records_text.lines([first_of(store, "h_once")])
    assert line.verdict == "allowed by rule rule-h_once of policy digest-1"
    assert records_text.with_verdict(line).endswith(f"({line.verdict})")


def test_an_observer_is_notified_of_a_denial() -> None:
    class Watcher(Observer):
        seen: list[CallDenied] = []  # noqa: RUF012

        def denied(self, event: CallDenied) -> None:
            self.seen.append(event)

    @nl.agent(name="gate.observed")
    async def observed() -> None:
        await once(5)

    store, governor = QuickStore(), SmallGovernor({"h_once": Deny("never")})

    async def main() -> None:
        process = ProcessOptions(governor=governor, observers=(Watcher(),))
        async with nl.Runtime(store, process=process) as rt:
            await rt.start(observed, id="run")
            await rt.work(until_idle=True)

    run_async(main)
    (event,) = Watcher.seen
    assert (event.declared.name, event.why) == ("h_once", "the policy denies it: never")
    assert event.judged is not None
    assert event.judged.r == ("rule-h_once",)


def test_a_hold_is_asked_about_again_even_if_no_news_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    @nl.agent(name="gate.unwoken")
    async def unwoken() -> int:
        return await once(5)

    monkeypatch.setattr(holds, "AGAIN_MS", 100)
    store, governor = QuickStore(), SmallGovernor()
    governor.halted = {"h_once"}
    assert perform(store, governor, unwoken).state is State.CHECKPOINTED
    governor.halted = set()

    async def main() -> Any:
        async with governed(store, governor) as rt:
            working = asyncio.create_task(rt.work())
            value = await (await rt.get("run")).result(timeout=10)
            working.cancel()
            return value

    assert run_async(main) == 5


def test_what_raises_while_it_is_asked_whether_a_call_is_held_stops_the_run() -> None:
    class Faulty(SmallGovernor):
        def held(self, step: Any, call: Call) -> Any:
            raise ZeroDivisionError("division by zero")

    @nl.agent(name="gate.faulty")
    async def faulty() -> int:
        return await once(5)

    store = QuickStore()
    assert perform(store, Faulty(), faulty).state is State.ESCALATED
    assert [item.kind for item in store.list_inbox(run="run")] == [ItemKind.POLICY]
    assert DID == []
