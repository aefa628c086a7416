"""Trips count denials of all workers, and halt; limits hold rates exactly, and refuse children."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

import ninelives as nl
from ninelives.core.errors import Denied, UsageError
from ninelives.core.governance.accounts import Over, Reserve, Settle
from ninelives.core.governance.verdicts import Allow, Call, Deny, Judgement
from ninelives.core.model.run import NewRun, RunQuery, State
from ninelives.engine.spec.registry import Step
from ninelives.governance import limits, trips
from ninelives.governance.background import Background
from ninelives.governance.governor import StoreGovernor
from ninelives.governance.halt_changes import unhalt
from ninelives.governance.halts import Halts, read_halts
from ninelives.governance.limits import CallLimits
from ninelives.governance.trips import Trips
from ninelives.stores.clock import SystemClock
from ninelives.stores.memory import MemoryStore
from tests.crash.stores import AnyStore, open_at
from tests.governance.small_governor import governed
from tests.replay.lifetimes import QuickStore, run_async
from tests.workers.test_workers import until

NO_STEP = cast("Step", None)


@pytest.fixture
def store(ground: Path) -> Iterator[AnyStore]:
    """Yield a store of each durable kind."""
    opened = open_at(ground)
    opened.create_runs([NewRun(id="r1", agent="shop", fingerprint=b"f", body=b"{}")])
    yield opened
    opened.close()


@pytest.fixture(autouse=True)
def _refund() -> None:
    @nl.action(name="refund")
    async def refund() -> None:
        """Refund."""


def call(**changes: Any) -> Call:
    """Return a call of agent `shop`, in run `r1`."""
    facts = {"action": "refund", "kind": "action", "args": {}, "run": "r1", "agent": "shop"}
    return msgspec.convert({**facts, **changes}, Call)


# Trips --------------------------------------------------------------------------------------------


def trip(**changes: Any) -> tuple[trips.TripRule, ...]:
    """Return a rule that halts after five denials."""
    table = {"id": "denied", "when": "denials > 5 in 1m", "halt": "agent", **changes}
    return trips.check([table], names={"refund"})


HALTED = {"agent": "agent 'shop'", "action": "action 'refund'", "run": "run 'r1'", "all": "everything"}


@pytest.mark.parametrize("halted", HALTED)
def test_denials_of_several_workers_together_halt(store: AnyStore, ground: Path, halted: str) -> None:
    workers = [(open_at(ground), Background()) for _ in range(2)]
    counting = [Trips(one, trip(halt=halted), behind) for one, behind in workers]
    for _ in range(3):
        for one in counting:
            one.outcome(NO_STEP, call(), OSError("no denial"))
            one.outcome(NO_STEP, call(), None)
            one.outcome(NO_STEP, call(), Denied("no"))
    until(lambda: read_halts(store, store.now_ms()))
    for _, behind in workers:
        behind.close()
    (found,) = read_halts(store, store.now_ms())
    assert (found.what, found.by) == (HALTED[halted], "trip:denied")
    assert "denials > 5 in 1m" in found.reason
    # Lifted, it counts from the beginning.
    unhalt(store, [found.id], by="ada")
    behind = Background()
    again = Trips(store, trip(halt=halted), behind)
    for _ in range(5):
        again.outcome(NO_STEP, call(), Denied("no"))
    behind.close()
    assert read_halts(store, store.now_ms()) == ()
    for opened, _ in workers:
        opened.close()


def test_a_halt_that_a_dead_worker_declared_and_did_not_clear_is_not_declared_twice(store: AnyStore) -> None:
    behind = Background()
    counting = Trips(store, trip(), behind)
    cleared = counting._change

    def dies(rule: Any, scope: str, within_ms: int, happened: Any) -> Any:
        if happened is None:
            raise RuntimeError
        return cleared(rule, scope, within_ms, happened)

    vars(counting)["_change"] = dies
    for _ in range(6):
        counting.outcome(NO_STEP, call(), Denied("no"))
    until(lambda: read_halts(store, store.now_ms()))
    more = Background()
    other = Trips(store, trip(), more)
    other.outcome(NO_STEP, call(), Denied("no"))
    more.close()
    assert len(read_halts(store, store.now_ms())) == 1


@pytest.mark.parametrize(
    "wrong",
    [
        {"when": "denials >= 5 in 1m"},
        {"when": "sightings > 5 in 1m"},
        {"when": "denials > 5"},
        {"when": "denials > 5000 in 1m"},
        {"halt": "everyone"},
        {"halts": "agent"},
        {"actions": ["refnud"]},
        {"id": "a/b"},
        {"until": "soon"},
    ],
)
def test_a_trip_with_a_mistake_is_refused(wrong: dict[str, object]) -> None:
    assert trip(until="1h")[0].condition == ("denials", 5, 60_000)
    with pytest.raises(UsageError):
        trip(**wrong)


# Limits -------------------------------------------------------------------------------------------


class MovedClock(SystemClock):
    """A wall clock that stands in the middle of a minute, until the test moves it to the next."""

    minutes = 0

    def now_ms(self) -> int:
        """Return the middle of the minute."""
        return (28_000_000 + self.minutes) * 60_000 + 30_000


class Allows:
    """A policy that allows everything."""

    digest = "allows"
    tables: Mapping[str, Any] = {}

    def judge(self, call: Call) -> Judgement:
        """Allow it."""
        return Judgement(Allow())


def test_a_rate_is_exact_and_what_is_beyond_it_waits_for_the_next_minute() -> None:
    clock, done = MovedClock(), list[str]()
    store = MemoryStore(clock)
    quick = store.wait_for_work
    vars(store)["wait_for_work"] = lambda seconds: quick(min(seconds, 0.01))

    @nl.action(name="search")
    async def search(query: str) -> str:
        done.append(query)
        return query

    @nl.agent(name="searcher")
    async def searcher(query: str) -> str:
        return await search(query)

    rules = limits.check([{"id": "searches", "actions": ["search"], "per_minute": 3}])

    async def minute() -> list[str]:
        behind = Background()
        governor = StoreGovernor(
            store,
            Halts(store.now_ms),
            policy=Allows(),
            limits=CallLimits(store, rules, behind),
            background=behind,
        )
        governor.read()
        async with governed(store, governor) as rt:
            for number in range(8):
                await rt.start(searcher, str(number), id=f"s{number}")
            await rt.work(until_idle=True)
        governor.close()
        return [row.waits for row in store.list_runs(RunQuery()) if row.state is State.CHECKPOINTED]

    waits = run_async(minute)
    assert len(done) == 3
    assert waits == ["for the next minute: the limit 'searches' allows 3 calls in each"] * 5
    for expected in (6, 8):
        clock.minutes += 1
        run_async(minute)
        assert len(done) == len(set(done)) == expected
    names = [one.name for one in store.read_documents(limits.PREFIX)]
    assert len(names) <= 2, "the accounts of minutes that are over are removed"


def test_a_run_starts_no_more_children_than_it_may_and_a_deep_one_none() -> None:
    store = QuickStore()

    @nl.agent(name="parent")
    async def parent(depth: int) -> list[str]:
        said = []
        for _ in range(3):
            try:
                child = await nl.spawn(parent, depth + 1)
                said.append(str(len(await child.result())))
            except nl.Denied as error:
                said.append(str(error))
        return said

    async def main() -> list[str]:
        behind = Background()
        rules = limits.check([{"id": "fan", "max_children": 2, "max_depth": 1}])
        limited = CallLimits(store, rules, behind)
        governor = StoreGovernor(
            store, Halts(store.now_ms), policy=Allows(), limits=limited, background=behind
        )
        governor.read()
        async with governed(store, governor) as rt:
            found: list[str] = await rt.run(parent, 0)
        governor.close()
        return found

    first, second, third = run_async(main)
    assert (first, second) == ("3", "3")
    assert "starts at most 2 child runs" in third
    children = [row for row in store.list_runs(RunQuery()) if row.parent is not None]
    assert len(children) == 2, "a child at depth 1 starts none"


def test_children_are_counted_by_run_and_a_deep_run_has_none(store: AnyStore) -> None:
    behind = Background()

    @nl.agent(name="shop")
    async def shop() -> None: ...

    rules = limits.check([{"id": "fan", "max_children": 2, "max_depth": 3, "agents": ["sh*"]}])
    limited = CallLimits(store, rules, behind)
    spawn = call(kind="spawn", action="child")
    assert limited.reserves(NO_STEP, call()) == ()
    assert limited.reserves(NO_STEP, call(kind="spawn", agent="other")) == ()
    (reserve,) = limited.reserves(NO_STEP, spawn)
    assert reserve == Reserve("limits/fan/rr1", {"children": 1}, {"children": 2})
    denied = limited.over(NO_STEP, spawn, Over(reserve.account, "children", 2, 0, 2, 1))
    assert denied == Deny("the limit 'fan': a run starts at most 2 child runs")
    assert limited.over(NO_STEP, spawn, Over("budgets/fan", "children", 2, 0, 2, 1)) is None
    # A child that was started counts for good; one that is started again, or was not, does not count twice.
    assert limited.settles(NO_STEP, spawn, (reserve,), b"id", {}) == ()
    assert limited.settles(NO_STEP, spawn, (reserve,), None, {}) == (
        Settle(reserve.account, {"children": 1}, {}),
    )
    assert limited.judge(call(kind="spawn", depth=2)) is None
    refused = limited.judge(call(kind="spawn", depth=3))
    assert refused is not None
    assert isinstance(refused.verdict, Deny)
    behind.close()


@pytest.mark.parametrize(
    "wrong",
    [
        {"per_minute": 3},
        {"actions": ["search"]},
        {"actions": ["refnud"], "per_minute": 3},
        {"actions": ["refund"], "per_minute": -1},
        {"actions": ["refund"], "per_minute": "3"},
        {"max_chidlren": 3},
        {"max_depth": 1, "agents": ["serchr"]},
        {"id": "a/b", "max_depth": 1},
        {},
    ],
)
def test_a_limit_with_a_mistake_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        limits.check([{"id": "one", **wrong}], names={"refund", "search"})
