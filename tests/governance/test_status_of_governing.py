"""What `status` and metrics say of halts, breakers, budgets and policies, and what of it is a problem."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

import ninelives as nl
from ninelives.cli.operate.status import lines
from ninelives.core.governance.breaker import Breaker, BreakerState, failed
from ninelives.core.model.commit import Park
from ninelives.core.model.session import Cause, NewSession
from ninelives.governance.breakers import PREFIX, held_until
from ninelives.governance.enforced import PREFIX as GOVERNED
from ninelives.governance.enforced import Enforced, note_enforced
from ninelives.governance.halt_changes import Selectors, halt
from ninelives.governance.halts import held_words
from ninelives.ops.metrics.exposition import exposed
from ninelives.ops.metrics.reading import read
from ninelives.ops.status import status
from ninelives.ops.status_facts import Status
from ninelives.stores.memory import MemoryStore
from ninelives.stores.sqlite import SqliteStore
from tests.clocks import SteppingClock
from tests.contract.makers import append, new_run

DAY_MS = 86_400_000


@pytest.fixture
def clock() -> SteppingClock:
    return SteppingClock()


@pytest.fixture
def store(clock: SteppingClock) -> MemoryStore:
    return MemoryStore(clock)


def kinds(store: MemoryStore) -> list[str]:
    return [one.kind for one in status(store, "memory:").problems]


def shown(found: Status) -> str:
    return "\n".join(lines(found))


def park(store: MemoryStore, run: str, waits: str) -> None:
    """Let a run wait, as a worker does."""
    if not store.list_sessions():
        store.register_session(NewSession(id="s", host="h", pid=1, agents=("shop",), lease_ms=30 * DAY_MS))
    store.create_runs([new_run(run, agent="shop")])
    (row,) = store.claim_runs("s", 1, {"shop": 1}, only=run).runs
    store.commit([append(row, change=Park(store.now_ms() + 60 * DAY_MS, waits, row.news))])


def test_a_halt_says_how_many_runs_it_holds_and_is_a_problem_when_it_may_be_forgotten(
    store: MemoryStore, clock: SteppingClock
) -> None:
    made = halt(store, Selectors(action="refund"), reason="look", by="ada")
    until = halt(store, Selectors(action="mail"), reason="a campaign", by="eve", until="30d")
    for number in range(3):
        park(store, f"r{number}", f"{held_words(made)} (action 'refund': look) is lifted")
    found = status(store, "memory:")
    assert [(one.id, one.runs) for one in found.halts] == [(made.id, 3), (until.id, 0)]
    assert f"({made.id}); 3 runs wait" in shown(found)
    clock.advance(DAY_MS)
    assert kinds(store) == []
    clock.advance(1000)
    (problem,) = status(store, "memory:").problems
    assert problem.kind == "halted", "one with an end is not forgotten"
    assert problem.text == (
        "action 'refund' (3 runs wait) has been halted for 24 hours, by ada: look; "
        f"see: ninelives halts; to let it go on: ninelives unhalt {made.id}"
    )


def test_a_breaker_that_nothing_calls_any_more_is_no_problem(
    store: MemoryStore, clock: SteppingClock
) -> None:
    now_ms = clock.now_ms()
    state = failed(BreakerState(), Breaker(failures=1), [now_ms], now_ms, "OSError: away")
    store.write_document(f"{PREFIX}search", msgspec.json.encode(state), version=0)
    assert kinds(store) == ["breaker"]
    assert sample(store, "ninelives_breakers_open") == 1
    clock.advance(30_000 + 601_000)
    assert kinds(store) == []
    assert "breaker      search is open" in shown(status(store, "memory:"))
    assert sample(store, "ninelives_breakers_open") == 0
    park(store, "r", f"{held_until('search')}, open since: OSError: away")
    assert kinds(store) == ["breaker"]
    assert "search is open, opened 1 time: OSError: away; 1 run waits" in shown(status(store, "memory:"))


LIMITED = """
[policy]
name = "night"
default = "allow"

[[budget]]
name = "tenant-{per}"
scope = "label:tenant"
per = "{per}"
on = "wait"
usd = 1
only = ["status.order"]
"""


@nl.action(name="status.order", cost=0.6)
async def order(number: int) -> int:
    return number


@nl.agent(name="status.orders")
async def orders() -> int:
    return await order(1) + await order(2)


@pytest.mark.parametrize(("per", "is_problem"), [("month", True), ("minute", False)])
def test_runs_that_a_used_up_budget_holds_are_said_and_are_a_problem_if_it_takes_long(
    tmp_path: Path, per: str, is_problem: bool
) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text(LIMITED.format(per=per), encoding="utf-8")
    url = f"sqlite:///{tmp_path}/runs.db"

    async def main() -> None:
        async with nl.Runtime(url, policy=policy) as rt:
            for tenant in ("acme", "acme2"):
                await rt.start(orders, labels={"tenant": tenant})
            await rt.work(until_idle=True)

    asyncio.run(main())
    store: Any = SqliteStore(tmp_path / "runs.db")
    found = status(store, url)
    store.close()
    if per == "minute" and not found.budgets:
        return  # the minute has turned meanwhile
    assert {(one.budget, one.value, one.runs) for one in found.budgets} == {
        (f"tenant-{per}", "acme", 1), (f"tenant-{per}", "acme2", 1)
    }  # fmt: skip
    assert "of label tenant=acme is used up: 1 run waits until" in shown(found)
    texts = [one.text for one in found.problems if one.kind == "spent"]
    assert bool(texts) is is_problem
    assert not is_problem or "ninelives budget raise tenant-month acme " in texts[0]


def test_workers_of_an_agent_with_different_policies_are_a_problem_once_no_rollout_takes_so_long(
    store: MemoryStore, clock: SteppingClock
) -> None:
    def start(name: str, agent: str, policy: Enforced | None) -> None:
        if policy is not None:
            note_enforced(store, name, policy)
        store.register_session(NewSession(id=name, host="h", pid=1, agents=(agent,), lease_ms=DAY_MS))

    start("free", "shop", None)
    assert status(store, "memory:").policies == [], "where nobody has a policy, nothing is said of it"
    strict = Enforced("digest-of-strict", "strict")
    start("strict", "shop", strict)
    start("other", "mail", Enforced("digest-of-mail", "mail"))  # another agent: its own policy
    found = status(store, "memory:")
    assert "policies     no policy (1 worker), mail digest-of-ma (1 worker)" in shown(found)
    assert sample(store, 'ninelives_policies{agent="shop"}') == 2
    assert sample(store, 'ninelives_policies{agent="mail"}') == 1
    clock.advance(300_000)
    assert kinds(store) == []
    clock.advance(1000)
    (problem,) = status(store, "memory:").problems
    assert problem.kind == "policies"
    assert problem.text.startswith(
        "workers judge the calls of shop by different policies: no policy (1 worker, such as free), "
        "strict digest-of-st (1 worker, such as strict)"
    )
    store.end_sessions(["free"], Cause.STOPPED)
    assert kinds(store) == []


def test_a_worker_says_which_policy_it_enforces_while_it_works(tmp_path: Path) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text(LIMITED.format(per="month"), encoding="utf-8")
    url = f"sqlite:///{tmp_path}/runs.db"
    seen: list[Status] = []

    @nl.action(name="status.see")
    async def see() -> None:
        store: Any = SqliteStore(tmp_path / "runs.db")
        seen.append(status(store, url))
        store.close()

    @nl.agent(name="status.seeing")
    async def seeing() -> None:
        await see()

    async def main() -> list[str]:
        for _ in range(2):
            async with nl.Runtime(url, policy=policy) as rt:
                await rt.run(seeing)
                stored: Any = rt.store
                known = [one.name for one in stored.read_documents(GOVERNED)]
        return known

    known = asyncio.run(main())
    for one in seen:
        ((name, workers),) = [(policy.name, policy.workers) for policy in one.policies]
        assert (name, workers) == ("night", 1)
    assert len(seen) == 2
    assert len(known) == 1, "the document of a session that has ended is removed"


def sample(store: MemoryStore, name: str) -> float:
    """Return a sample of the metrics."""
    text = exposed(read(store), "", "")[0].decode()
    (line,) = [line for line in text.splitlines() if line.startswith(f"{name} ")]
    return float(line.rpartition(" ")[2])
