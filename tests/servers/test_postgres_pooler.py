"""Behind a transaction pooler: what still holds, what is lost, and what a direct way brings back."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from urllib.parse import quote, urlsplit

import pytest

import ninelives as nl
from ninelives.core.errors import UsageError
from ninelives.core.model.commit import End, Outcome
from ninelives.core.model.run import State
from ninelives.core.model.session import Cause, Fate, Session
from ninelives.stores.postgres import PostgresStore
from tests.contract.makers import AGENTS, append, damage_in, new_run, new_session, reserve
from tests.servers.pooler import Pooler
from tests.servers.postgres import shared_url
from tests.servers.test_postgres_store import running, until


@pytest.fixture
def pooler() -> Iterator[Pooler]:
    """Yield a pooler before the shared server."""
    with Pooler(urlsplit(shared_url()).port or 5432) as made:
        yield made


@pytest.fixture
def pooled_url(postgres_url: str, pooler: Pooler) -> str:
    """Return the URL of a fresh schema through the pooler."""
    return postgres_url.replace(f":{urlsplit(postgres_url).port}/", f":{pooler.port}/")


def direct(postgres_url: str) -> str:
    """Return what leads past the pooler."""
    return f"direct_url={quote(postgres_url.partition('?')[0], safe='')}"


@nl.action(name="pooler.add")
async def add(n: int) -> int:
    """Add one."""
    return n + 1


@nl.agent(name="pooler.count")
async def count(to: int) -> int:
    """Add one so many times."""
    n = 0
    while n < to:
        n = await add(n)
    return n


@pytest.mark.parametrize("has_direct", [False, True])
def test_agents_run_through_a_pooler(
    postgres_url: str, pooled_url: str, pooler: Pooler, has_direct: bool
) -> None:
    rest = direct(postgres_url) if has_direct else "pooled=true"

    async def main() -> list[int]:
        async with nl.Runtime(f"{pooled_url}&{rest}") as rt:
            runs = [await rt.start(count, 5, id=f"r{n}") for n in range(10)]
            await rt.work(until_idle=True)
            return [await run.result() for run in runs]

    assert asyncio.run(main()) == [5] * 10
    assert min(pooler.transactions) > 1, "every connection had its share"


def test_all_that_a_commit_may_carry_goes_through_a_pooler(pooled_url: str) -> None:
    store = PostgresStore(f"{pooled_url}&pooled=true")
    run = running(store)
    (verdict,) = store.commit([append(run, b"1", keys=[reserve("k")])])
    assert verdict.outcome is Outcome.COMMITTED
    store.send_signal(run.id, "paid", b"1", id="once")
    store.send_signal(run.id, "paid", b"1", id="once")
    assert len(store.load_journal(run.id).signals) == 1
    assert store.put_blobs([b"x" * 100_000])
    now = store.read_run(run.id)
    assert now is not None
    (verdict,) = store.commit([append(now, b"2", change=End(State.COMPLETED))])
    assert verdict.outcome is Outcome.COMMITTED
    assert store.renew_session("s1").left_ms > 0
    assert damage_in(store) == []
    store.close()


def test_without_a_direct_way_there_are_no_locks_and_no_notifications(pooled_url: str) -> None:
    dying, other = (PostgresStore(f"{pooled_url}&pooled=true") for _ in range(2))
    running(dying)
    dying.close()
    assert other.end_sessions(None, Cause.DIED) == []
    found = other.read_session("s1")
    assert found is not None
    assert found.fate is Fate.LIVES
    other.create_runs([new_run("r2")])
    assert not other.wait_for_work(0.01)
    other.close()


def test_a_direct_way_brings_deaths_and_notifications_back(postgres_url: str, pooled_url: str) -> None:
    dying, other = (PostgresStore(f"{pooled_url}&{direct(postgres_url)}") for _ in range(2))
    running(dying)
    other.register_session(new_session("s2", lease_ms=1_000_000))
    assert other.wait_for_work(30)  # it listens from now on
    while other.wait_for_work(0.05):
        pass
    dying.create_runs([new_run("r2")])
    assert other.wait_for_work(30), "it was told of the new run"
    dying.close()
    (ended,) = until(lambda: other.end_sessions(None, Cause.DIED) or _ended(other))
    assert (ended.id, ended.fate) == ("s1", Fate.UNKNOWN)
    assert {run.id for run in other.claim_runs("s2", 5, AGENTS).runs} == {"r1", "r2"}
    other.close()


def _ended(store: PostgresStore) -> list[Session]:
    found = store.read_session("s1")
    return [found] if found is not None and found.ended_ms is not None else []


@pytest.mark.parametrize("wrong", ["direct_url=sqlite%3A%2F%2F%2Fx", "direct_url=", "pooled=perhaps"])
def test_a_direct_way_that_is_none_is_refused(pooled_url: str, wrong: str) -> None:
    with pytest.raises(UsageError):
        PostgresStore(f"{pooled_url}&{wrong}")
