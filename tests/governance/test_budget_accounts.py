"""Budgets on every store: windows, limits that are raised, clocks that are set, what is removed."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

import ninelives as nl
from ninelives.core.errors import UsageError
from ninelives.core.governance.accounts import AccountOp, Over
from ninelives.core.governance.verdicts import Call, Deny
from ninelives.core.model.commit import Commit, Outcome, Park
from ninelives.core.model.run import RunRow, State
from ninelives.engine.governor import Hold
from ninelives.engine.spec.registry import Step, find_step
from ninelives.governance.budgets.budgets import Budgets
from ninelives.governance.budgets.changes import Changed, change
from ninelives.governance.budgets.cleanup import KEPT_MS, clean
from ninelives.governance.budgets.declarations import check
from ninelives.governance.budgets.publication import published
from ninelives.governance.budgets.standings import AccountStanding, ratios, standings
from tests.clocks import SteppingClock
from tests.contract.benches import STORES, Bench, make_bench
from tests.contract.makers import append, damage_in, new_run

NOON_MS = int(datetime(2027, 1, 31, 12, tzinfo=UTC).timestamp() * 1000)
HOUR = {"name": "hour", "scope": "label:tenant", "per": "hour", "tokens": 1000, "on": "wait"}


@pytest.fixture(params=STORES)
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    clock = SteppingClock()
    clock.advance(NOON_MS - clock.now_ms())
    made = make_bench(request.param, clock, tmp_path)
    yield made
    made.close()


@pytest.fixture
def step() -> Step:
    @nl.action(name="spend", cost=lambda tokens: nl.Cost(tokens=tokens))
    async def spend(tokens: int) -> None: ...

    found = find_step("spend")
    assert found is not None
    return found


class Tenant:
    """A run that calls a step under budgets, as the engine does it."""

    def __init__(
        self, bench: Bench, step: Step, run: RunRow, tables: list[dict[str, Any]], **facts: Any
    ) -> None:
        self.bench, self.step, self.run = bench, step, run
        clock = bench.clock
        self.budgets = Budgets(check(tables), now_ms=bench.store.now_ms, boot_ms=clock.boot_ms)
        self.budgets.refresh(bench.store)
        self.facts = {"labels": {"tenant": "acme"}, "agent": "shop", **facts}
        self.calls = 0
        self.call = self._call(0)

    def _call(self, tokens: int) -> Call:
        return Call(
            action="spend",
            kind="action",
            args={"tokens": tokens},
            run=self.run.id,
            step=f"s#{self.calls}",
            **self.facts,
        )

    def begin(self, tokens: int) -> Over | None:
        """Reserve for a call; return which limit it would pass."""
        self.calls += 1
        self.call = self._call(tokens)
        self.reserved = self.budgets.reserves(self.step, self.call)
        return self._commit(self.reserved)

    def end(self, charged: Mapping[str, int] | None = None, outcome: bytes | None = b"null") -> None:
        """Settle the call."""
        ops = self.budgets.settles(self.step, self.call, self.reserved, outcome, dict(charged or {}))
        assert self._commit(ops) is None

    def spend(self, tokens: int, charged: int | None = None) -> Over | None:
        """Make a whole call."""
        over = self.begin(tokens)
        if over is None:
            self.end({"tokens": tokens if charged is None else charged})
        return over

    def over(self, over: Over) -> object:
        """Return what becomes of the call."""
        return self.budgets.over(self.step, self.call, over)

    def _commit(self, accounts: tuple[AccountOp, ...]) -> Over | None:
        commit: Commit = append(self.run, b"x", accounts=accounts)
        (said,) = self.bench.store.commit([commit])
        if said.outcome is Outcome.COMMITTED:
            self.run = replace(self.run, length=commit.new_length, head=commit.new_head)
            return None
        assert said.outcome is Outcome.OVER, said
        return said.account


def stands(bench: Bench) -> dict[str, tuple[int, int, int]]:
    """Return by window and value what is spent, reserved and the limit of tokens, of the windows of now."""
    found = standings(bench.store, bench.clock.now_ms())
    return {
        f"{one.window} {one.value}": (meter.spent, meter.reserved, meter.limit)
        for one in found
        for meter in one.meters
        if meter.meter == "tokens"
    }


def test_an_account_is_charged_what_is_spent_and_refuses_what_is_over(bench: Bench, step: Step) -> None:
    tenant = Tenant(bench, step, bench.running(), [HOUR])
    assert tenant.spend(600, charged=400) is None
    assert stands(bench) == {"2027-01-31T12 acme": (400, 0, 1000)}
    assert tenant.begin(600) is None
    over = tenant.begin(1)
    assert over == Over("budget/hour/2027-01-31T12/label:tenant=acme", "tokens", 1000, 400, 600, 1)
    said = tenant.over(over)
    assert isinstance(said, Hold)
    assert said.due_ms == NOON_MS + 3_600_000
    assert damage_in(bench.store) == []


def test_a_window_that_turns_is_another_account_and_late_calls_settle_where_they_began(
    bench: Bench, step: Step
) -> None:
    tenant = Tenant(bench, step, bench.running(), [HOUR])
    assert tenant.begin(1000) is None
    bench.clock.advance(3_600_000)
    assert stands(bench) == {}
    tenant.end({"tokens": 900})
    assert stands(bench) == {}
    assert tenant.spend(1000) is None
    assert stands(bench) == {"2027-01-31T13 acme": (1000, 0, 1000)}
    # Turned back: the account of then, with what was spent in it, and not a new budget.
    bench.clock.advance(-3_600_000)
    assert stands(bench) == {"2027-01-31T12 acme": (900, 0, 1000)}
    assert tenant.spend(101) is not None
    assert tenant.spend(100) is None


def test_what_is_charged_over_the_reservation_is_spent_and_refuses_the_next_call(
    bench: Bench, step: Step
) -> None:
    tenant = Tenant(bench, step, bench.running(), [HOUR])
    assert tenant.spend(10, charged=5000) is None
    assert stands(bench) == {"2027-01-31T12 acme": (5000, 0, 1000)}
    over = tenant.spend(0)
    assert over is not None
    assert isinstance(tenant.over(over), Hold)


def test_a_worker_that_lost_its_run_charges_nothing(bench: Bench, step: Step) -> None:
    tenant = Tenant(bench, step, bench.running(), [HOUR])
    assert tenant.begin(100) is None
    before = tenant.run
    tenant.end()
    tenant.run = before
    ops = tenant.budgets.settles(step, tenant.call, tenant.reserved, b"other", {"tokens": 7})
    (said,) = bench.store.commit([append(replace(before, epoch=before.epoch - 1), b"y", accounts=ops)])
    assert said.outcome is Outcome.FENCED
    assert stands(bench) == {"2027-01-31T12 acme": (100, 0, 1000)}


def test_tenants_trees_and_runs_without_the_label_have_accounts_of_their_own(
    bench: Bench, step: Step
) -> None:
    tree = {"name": "tree", "scope": "tree", "tokens": 1000}
    bench.session("s1", lease_ms=10**9)
    bench.store.create_runs([new_run(f"r{n}") for n in range(4)])
    rows = {row.id: row for row in bench.store.claim_runs("s1", 4, {"helper": 4}).runs}
    facts: list[dict[str, Any]] = [
        {}, {"labels": {"tenant": "b/=c"}}, {"labels": {}}, {"labels": {}, "parent": "r0", "root": "r0"},
    ]  # fmt: skip
    for number, one in enumerate(facts):
        assert Tenant(bench, step, rows[f"r{number}"], [HOUR, tree], **one).spend(number + 1) is None
    found = {(one.budget, one.value): one.meters[0].spent for one in standings(bench.store, NOON_MS)}
    assert found == {
        ("hour", "acme"): 1, ("hour", "b/=c"): 2, ("hour", ""): 7,
        ("tree", "r0"): 5, ("tree", "r1"): 2, ("tree", "r2"): 3,
    }  # fmt: skip


def test_twenty_at_once_never_pass_a_budget(bench: Bench, step: Step) -> None:
    tables, count = [{**HOUR, "on": "deny"}], 20
    bench.session("s1", lease_ms=10**9)
    bench.store.create_runs([new_run(f"r{n}") for n in range(count)])
    tenants = [
        Tenant(bench, step, row, tables)
        for row in bench.store.claim_runs("s1", count, {"helper": count}).runs
    ]
    passed, errors = list[int](), list[BaseException]()

    def work(tenant: Tenant) -> None:
        try:
            while (over := tenant.spend(7)) is None:
                passed.append(7)
            assert isinstance(tenant.over(over), Deny)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(one,)) for one in tenants]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert 1000 - 7 * count <= sum(passed) <= 1000
    assert stands(bench) == {"2027-01-31T12 acme": (sum(passed), 0, 1000)}


# Changes ------------------------------------------------------------------------------------------------

LOGGED: dict[str, Mapping[str, object]] = {}


def changed(bench: Bench, value: str | None, tokens: int, *, raises: bool, name: str = "hour") -> Changed:
    LOGGED.clear()
    return change(
        bench.store, name, value, {"tokens": tokens}, raises=raises, by="ada", reason="a large order",
        log=lambda named, facts: LOGGED.update({named: facts}),
    )  # fmt: skip


def test_a_raised_limit_lets_more_pass_in_this_window_and_wakes_what_waits(bench: Bench, step: Step) -> None:
    tenant = Tenant(bench, step, bench.running(), [HOUR])
    assert tenant.spend(1000) is None
    over = tenant.spend(500)
    assert over is not None
    hold = tenant.over(over)
    assert isinstance(hold, Hold)
    parked = append(tenant.run, b"p", change=Park(hold.due_ms, hold.what, 0))
    assert bench.store.commit([parked])[0].outcome is Outcome.COMMITTED
    assert bench.row(tenant.run.id).due_ms == hold.due_ms
    assert changed(bench, "other", 5, raises=True).woken == ()
    said = changed(bench, "acme", 500, raises=True)
    assert said.woken == (tenant.run.id,)
    assert said.account.meters[0].limit == 1500
    row = bench.row(tenant.run.id)
    assert (row.state, row.due_ms) == (State.CHECKPOINTED, bench.clock.now_ms())
    (facts,) = LOGGED.values()
    assert (facts["by"], facts["before"], facts["after"]) == ("ada", {"tokens": 1000}, {"tokens": 1500})
    (taken,) = bench.store.claim_runs("s1", 1, {"helper": 1}).runs
    tenant.run = taken
    assert tenant.spend(500) is None
    assert tenant.spend(1) is not None
    bench.clock.advance(3_600_000)
    assert tenant.spend(1001) is not None, "the next window has the policy's limit"
    assert tenant.spend(1000) is None


def test_a_limit_can_be_set_lower_and_before_anything_was_spent(bench: Bench, step: Step) -> None:
    tenant = Tenant(bench, step, bench.running(), [HOUR])
    changed(bench, "acme", 10, raises=False)
    assert stands(bench) == {"2027-01-31T12 acme": (0, 0, 10)}
    assert tenant.spend(11) is not None
    assert tenant.spend(10) is None
    changed(bench, "acme", 5, raises=True)
    assert len(LOGGED) == 2, "each change logs again what an earlier one may not have logged"
    assert tenant.spend(5) is None


@pytest.mark.parametrize(
    ("name", "value", "tokens", "why"),
    [
        ("day", "acme", 5, "no process has declared"),
        ("hour", None, 5, "has the scope"),
        ("hour", "acme", 0, "above 0"),
    ],
)
def test_a_change_that_cannot_be_meant_is_refused(
    bench: Bench, step: Step, name: str, value: str | None, tokens: int, why: str
) -> None:
    Tenant(bench, step, bench.running(), [HOUR])
    with pytest.raises(UsageError, match=why):
        changed(bench, value, tokens, raises=True, name=name)
    assert stands(bench) == {}


# What is kept -------------------------------------------------------------------------------------------


def test_declarations_are_published_and_the_last_one_wins(bench: Bench, step: Step) -> None:
    run = bench.running()
    for limit in (1000, 1000, 2000):
        Tenant(bench, step, run, [{**HOUR, "tokens": limit}])
    (found,) = published(bench.store)
    assert (found.name, found.limits) == ("hour", {"tokens": 2000})
    assert [one.version for one in bench.store.read_documents("declared-budget/")] == [2]


def test_metrics_see_the_account_that_is_used_most(bench: Bench, step: Step) -> None:
    tenant = Tenant(bench, step, bench.running(), [HOUR])
    tenant.spend(100)
    tenant.facts["labels"] = {"tenant": "b"}
    tenant.begin(250)
    assert ratios(standings(bench.store, NOON_MS)) == {("hour", "tokens", "label"): 0.25}


def test_old_windows_and_accounts_of_forgotten_runs_are_removed(bench: Bench, step: Step) -> None:
    day, run = {**HOUR, "name": "day", "per": "day"}, {"name": "run", "scope": "run", "tokens": 9}
    tenant = Tenant(bench, step, bench.running(), [HOUR, day, run])
    tenant.spend(1)
    gone = b'{"spent":{"tokens":1}}'
    bench.store.write_document("budget/run/all/run=gone", gone, version=0)
    bench.store.write_document("budget/odd", gone, version=0)

    def left() -> list[str]:
        return [one.name.split("/", 1)[1] for one in bench.store.read_documents("budget/")]

    assert clean(bench.store, bench.clock.now_ms()) == 0
    bench.clock.advance(3 * 86_400_000)
    assert clean(bench.store, bench.clock.now_ms()) == 1
    assert left() == ["day/2027-01-31/label:tenant=acme", "odd", "run/all/run=gone", "run/all/run=r1"]
    bench.clock.advance(KEPT_MS)
    assert clean(bench.store, bench.clock.now_ms()) == 2
    assert left() == ["odd", "run/all/run=r1"]


def test_an_account_shows_what_is_known_of_it(bench: Bench, step: Step) -> None:
    tenant = Tenant(bench, step, bench.running(), [HOUR])
    tenant.begin(100)
    tenant.end(outcome=None)
    (found,) = standings(bench.store, NOON_MS)
    assert isinstance(found, AccountStanding)
    assert (found.presumed, found.unpriced, found.whose) == (1, 0, "of label tenant=acme")
    assert msgspec.json.decode(msgspec.json.encode(found))["meters"][0]["spent"] == 100
