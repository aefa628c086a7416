"""The gate and the stores: intents that a halt or a limit refuses, and how reservations are settled."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import ninelives as nl
from ninelives.core.governance import accounts
from ninelives.core.governance.accounts import Reserve
from ninelives.core.governance.verdicts import Allow, Ask, Call, Deny
from ninelives.core.journal.replay import read_body
from ninelives.core.model.document import HALTS
from ninelives.core.model.inbox import ItemKind
from ninelives.core.model.run import Kind, State
from ninelives.engine.context import FRAME
from ninelives.engine.governor import Hold
from tests.crash.stores import AnyStore, open_brisk
from tests.governance.small_governor import SmallGovernor, first_of, governed, kinds_of
from tests.replay.lifetimes import run_async

DID: list[Any] = []
COSTS: dict[str, int] = {}
ACCOUNT = "budget/day"


def _spend(cents: int) -> int:
    DID.append(cents)
    frame = FRAME.get()
    assert frame is not None
    for meter, amount in COSTS.items():
        frame.charge(meter, amount)
    return cents


@nl.action(name="s_plain")
async def plain(cents: int) -> int:
    return _spend(cents)


@nl.action(name="s_once", resumable=False)
async def once(cents: int) -> int:
    return _spend(cents)


@nl.action(name="s_keyed", resumable=False, key="s:{cents}")
async def keyed(cents: int) -> int:
    return _spend(cents)


@nl.action(name="s_shared", key="sh:{cents}")
async def shared(cents: int) -> int:
    return _spend(cents)


@nl.action(name="s_undone", resumable=False, retry=nl.Retry(attempts=1))
async def undone(cents: int) -> int:
    raise nl.NotDone("refused")


STEPS: dict[str, Any] = {"s_plain": plain, "s_once": once, "s_keyed": keyed, "s_shared": shared}
PROTECTED = [name for name in STEPS if name != "s_plain"]


FIRST: list[Callable[[], None]] = []
"""What happens once, just before the step is called."""


@nl.agent(name="gate.spends")
async def spends(kind: str, cents: int) -> Any:
    while FIRST:
        FIRST.pop()()
    try:
        return await (undone if kind == "s_undone" else STEPS[kind])(cents)
    except (nl.Denied, nl.StepFailed, nl.NotDone) as error:
        return f"{type(error).__name__}: {error}"


@pytest.fixture
def store(ground: Path) -> Iterator[AnyStore]:
    """Yield a store of each durable kind."""
    DID.clear()
    COSTS.clear()
    FIRST.clear()
    opened = open_brisk(ground)
    yield opened
    opened.close()


def perform(store: Any, governor: Any, kind: str, *, install: Any = None) -> Any:
    """Start the run, work until nothing can be worked on; return its result, or its row."""

    async def main() -> Any:
        async with governed(store, governor) as rt:
            rt.governing.install = (lambda: install(rt)) if install is not None else None
            run = await rt.start(spends, kind, 5, id="run")
            await rt.work(until_idle=True)
            row = store.read_run("run")
            return await run.result(timeout=5) if row.state.is_final else row

    return run_async(main)


def go_on(store: Any, governor: Any) -> Any:
    """Wake the run, work, and return its result."""

    async def main() -> Any:
        async with governed(store, governor) as rt:
            run = await rt.get("run")
            await run.signal("news")
            await rt.work(until_idle=True)
            return await run.result(timeout=5)

    return run_async(main)


def halt(store: Any, *actions: str, version: int = 0) -> None:
    """Declare a halt of some actions."""
    store.write_document(HALTS, json.dumps(" ".join(actions)).encode(), version=version)


def standing(store: Any) -> tuple[int, int]:
    """Return what was spent, and what is reserved."""
    found = {one.name: one.body for one in store.read_documents(ACCOUNT)}
    account = accounts.read(ACCOUNT, found.get(ACCOUNT))
    return account.spent.get("cents", 0), account.reserved.get("cents", 0)


def budgeted(kind: str, *, limit: int | None = 100, amount: int = 60) -> SmallGovernor:
    """Return a governor that reserves so much for each call."""
    governor = SmallGovernor()
    limits = {"cents": limit} if limit is not None else {}
    governor.estimates[kind] = (Reserve(ACCOUNT, {"cents": amount}, limits),)
    return governor


# Halts ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", PROTECTED)
def test_a_halt_that_comes_after_the_verdict_refuses_the_intent(store: AnyStore, kind: str) -> None:
    def late(call: Call) -> Allow:
        if not governor.refreshed:
            halt(store, kind)  # nothing holds the call: that was asked before
        return Allow()

    governor = SmallGovernor({kind: late})
    governor.store = store
    row = perform(store, governor, kind)
    assert (row.state, row.waits) == (State.CHECKPOINTED, f"until the halt of {kind} is lifted")
    assert DID == []
    assert Kind.INTENT not in kinds_of(store)
    halt(store, version=1)
    governor.halted, governor.version = set(), 2
    assert go_on(store, governor) == 5


@pytest.mark.parametrize("kind", PROTECTED)
def test_a_halt_of_another_action_only_makes_the_governor_read_again(store: AnyStore, kind: str) -> None:
    governor = SmallGovernor()
    governor.store = store
    FIRST.append(lambda: halt(store, "another"))
    assert perform(store, governor, kind) == 5
    assert governor.refreshed >= 1


@pytest.mark.parametrize("kind", PROTECTED)
def test_a_halt_reaches_a_runtime_that_nothing_governs(store: AnyStore, kind: str) -> None:
    async def install(rt: nl.Runtime) -> None:
        governor = SmallGovernor()
        governor.store, governor.has_policy = store, False
        await governor.refresh()
        rt.governing.govern(governor)

    FIRST.append(lambda: halt(store, kind))
    row = perform(store, None, kind, install=install)
    assert (row.state, row.waits) == (State.CHECKPOINTED, f"until the halt of {kind} is lifted")
    assert DID == []


@pytest.mark.parametrize("kind", PROTECTED)
def test_where_no_code_can_read_the_halts_the_run_stops(store: AnyStore, kind: str) -> None:
    FIRST.append(lambda: halt(store, kind))
    assert perform(store, None, kind).state is State.ESCALATED
    assert [item.kind for item in store.list_inbox(run="run")] == [ItemKind.POLICY]
    assert DID == []


def test_a_governor_that_never_sees_the_change_does_not_try_without_end(store: AnyStore) -> None:
    class Blind(SmallGovernor):
        async def refresh(self) -> None:
            self.refreshed += 1

    governor = Blind()
    halt(store, "another")
    assert perform(store, governor, "s_once").state is State.ESCALATED
    assert DID == []


# Budgets ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", STEPS)
def test_what_is_reserved_is_settled_with_the_outcome(store: AnyStore, kind: str) -> None:
    governor = budgeted(kind)
    assert perform(store, governor, kind) == 5
    assert standing(store) == (60, 0)
    assert read_body(first_of(store, kind)).j is not None


@pytest.mark.parametrize("kind", STEPS)
def test_what_the_body_charges_is_what_was_spent(store: AnyStore, kind: str) -> None:
    COSTS["cents"] = 7
    governor = budgeted(kind)
    assert perform(store, governor, kind) == 5
    assert standing(store) == (7, 0)
    ((_, outcome, charged),) = governor.settlements
    assert (outcome, charged) == (b"5", {"cents": 7})


def test_what_proves_that_nothing_was_done_spends_nothing(store: AnyStore) -> None:
    assert "refused" in perform(store, budgeted("s_undone"), "s_undone")
    assert standing(store) == (0, 0)


@pytest.mark.parametrize("kind", STEPS)
def test_a_call_over_a_limit_is_denied(store: AnyStore, kind: str) -> None:
    governor = budgeted(kind, limit=50)
    assert "over the limit" in perform(store, governor, kind)
    assert DID == []
    assert standing(store) == (0, 0)
    assert [one.limit for one in governor.overs] == [50]


@pytest.mark.parametrize("kind", STEPS)
def test_a_call_over_a_limit_may_wait(store: AnyStore, kind: str) -> None:
    governor = budgeted(kind, limit=50)
    governor.when_over = Hold("until the budget is raised")
    row = perform(store, governor, kind)
    assert (row.state, row.waits) == (State.CHECKPOINTED, "until the budget is raised")
    governor.estimates = budgeted(kind).estimates
    assert go_on(store, governor) == 5
    assert standing(store) == (60, 0)


@pytest.mark.parametrize("kind", STEPS)
def test_a_person_may_let_a_call_exceed_a_limit(store: AnyStore, kind: str) -> None:
    governor = budgeted(kind, limit=50)
    governor.when_over = Ask(to="role:money", why="It is over the limit.")
    perform(store, governor, kind)
    assert DID == []

    async def main() -> Any:
        async with governed(store, governor) as rt:
            (item,) = await rt.inbox("run")
            await item.approve(by="eve")
            await rt.work(until_idle=True)
            return await (await rt.get("run")).result(timeout=5)

    assert run_async(main) == 5
    assert standing(store) == (60, 0)


def test_a_cancelled_body_is_presumed_to_have_spent_its_estimate(store: AnyStore) -> None:
    @nl.action(name="s_slow")
    async def slow() -> None:
        await asyncio.sleep(30)

    @nl.agent(name="gate.impatient")
    async def impatient() -> str:
        try:
            async with nl.timeout(0.05):
                await slow()
        except TimeoutError:
            return "too slow"
        return "done"

    governor = budgeted("s_slow")

    async def main() -> Any:
        async with governed(store, governor) as rt:
            run = await rt.start(impatient, id="run")
            await rt.work(until_idle=True)
            return await run.result(timeout=5)

    assert run_async(main) == "too slow"
    assert standing(store) == (60, 0)
    assert [outcome for _, outcome, _ in governor.settlements] == [None]


def test_twenty_runs_never_pass_a_limit_together(store: AnyStore) -> None:
    governor = budgeted("s_plain", limit=300)
    governor.when_over = Deny("no money left")

    async def main() -> list[Any]:
        async with governed(store, governor) as rt:
            runs = [await rt.start(spends, "s_plain", 5, id=f"run-{n}") for n in range(20)]
            await rt.work(until_idle=True)
            return [await run.result(timeout=5) for run in runs]

    results = run_async(main)
    assert results.count(5) == len(DID) == 5
    assert standing(store) == (300, 0)


def test_a_result_of_another_run_is_judged_reserves_nothing_and_says_so(store: AnyStore) -> None:
    governor = budgeted("s_keyed")
    perform(store, governor, "s_keyed")

    async def main() -> Any:
        async with governed(store, governor) as rt:
            run = await rt.start(spends, "s_keyed", 5, id="second")
            await rt.work(until_idle=True)
            return await run.result(timeout=5)

    assert run_async(main) == 5
    assert DID == [5]
    assert standing(store) == (60, 0)
    said = read_body(first_of(store, "s_keyed", "second")).j
    assert said is not None
    assert (said.v, said.held) == ("a", {})
