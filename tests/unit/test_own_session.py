"""A runtime works on one run after the other as one session, as long as that owns nothing in between."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest

import ninelives as nl
from ninelives.core.errors import StoreBroken
from ninelives.core.model.commit import Commit, Verdict
from ninelives.core.model.counter import Counter as Counted
from ninelives.core.model.run import NewRun, RunQuery, State
from ninelives.core.model.session import Cause, Evidence, NewSession, Session
from ninelives.engine.worker import session as sessions
from ninelives.engine.worker import worker
from tests.replay.lifetimes import QuickStore, run_async


@nl.action(name="own.work")
async def work(number: int) -> int:
    return number


@nl.agent(name="own.quick")
async def quick(number: int) -> int:
    if number < 0:
        raise ValueError("negative")
    return await work(number)


@nl.agent(name="own.stuck")
async def stuck() -> None:
    await asyncio.Event().wait()


class Watched(QuickStore):
    """Notes who was registered and who was ended."""

    def __init__(self) -> None:
        super().__init__()
        self.begun: list[str] = []
        self.ended: list[str] = []

    def register_session(self, new: NewSession) -> Session:
        """Register it."""
        self.begun.append(new.id)
        return super().register_session(new)

    def end_sessions(
        self,
        sessions: Sequence[str] | None,
        cause: Cause,
        *,
        evidence: Mapping[str, Evidence] | None = None,
        counts: Mapping[str, Sequence[Counted]] | None = None,
    ) -> list[Session]:
        """End them."""
        ended = super().end_sessions(sessions, cause, evidence=evidence, counts=counts)
        self.ended += [one.id for one in ended]
        return ended


async def until(condition: Callable[[], object]) -> None:
    while not condition():  # noqa: ASYNC110 (it is another thread's)
        await asyncio.sleep(0.001)


def test_one_run_after_the_other_has_one_session_that_ends_with_the_runtime() -> None:
    store = Watched()

    async def main() -> None:
        async with nl.Runtime(store) as rt:
            assert await rt.run(quick, 1) == 1
            with pytest.raises(nl.RunFailed):
                await rt.run(quick, -1)
            assert await rt.run(quick, 3) == 3
            assert not store.ended
            assert len(store.list_sessions()) == 1

    run_async(main)
    assert len(store.begun) == 1
    assert store.ended == store.begun
    assert not store.list_sessions()


def test_two_runs_at_once_have_two_sessions_and_one_is_kept() -> None:
    store = Watched()

    async def main() -> None:
        async with nl.Runtime(store) as rt:
            assert list(await asyncio.gather(rt.run(quick, 1), rt.run(quick, 2))) == [1, 2]
            assert len(store.list_sessions()) == 1

    run_async(main)
    assert len(set(store.begun)) == 2
    assert sorted(store.ended) == sorted(store.begun)


def test_a_session_that_nobody_works_as_is_ended_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Watched()
    monkeypatch.setattr(sessions, "SPARE_SECONDS", 0.01)

    async def main() -> None:
        async with nl.Runtime(store) as rt:
            assert await rt.run(quick, 1) == 1
            await until(lambda: store.ended == store.begun)
            assert await rt.run(quick, 2) == 2

    run_async(main)
    assert len(set(store.begun)) == 2
    assert store.ended == store.begun


def test_a_session_with_a_run_that_was_left_is_not_kept() -> None:
    store = Watched()

    async def main() -> None:
        async with nl.Runtime(store) as rt:
            assert await rt.run(quick, 1) == 1
            left = asyncio.create_task(rt.run(stuck, id="left"))
            await until(lambda: (run := store.read_run("left")) and run.state is State.RUNNING)
            left.cancel()
            with suppress(asyncio.CancelledError):
                await left
            assert store.ended == store.begun

    run_async(main)
    run = store.read_run("left")
    assert run is not None
    assert run.session is None


def test_a_session_whose_lease_was_lost_meanwhile_serves_nobody() -> None:
    store = Watched()

    async def main() -> None:
        async with nl.Runtime(store, lease_seconds=0.3) as rt:
            assert await rt.run(quick, 1) == 1
            store.end_sessions(store.begun, Cause.EXPIRED)
            kept = rt._spare._kept
            assert kept is not None
            await until(lambda: not kept.lease.until_ms)
            assert await rt.run(quick, 2) == 2

    run_async(main)
    assert len(set(store.begun)) == 2


def test_a_kept_session_looks_for_the_dead_when_its_run_is_somebodys(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Watched()
    monkeypatch.setattr(worker, "POLL_SECONDS", 3600.0)

    async def main() -> int:
        async with nl.Runtime(store) as rt:
            await rt.run(quick, 1, id="first")
            run = await rt.start(quick, 5, id="taken")
            store.register_session(NewSession(id="gone", host="elsewhere", pid=1, lease_ms=1))
            store.claim_runs("gone", 1, {"own.quick": 1}, only="taken")
            row = store.read_run("taken")
            assert row is not None
            assert row.session == "gone"
            assert await rt.run(quick, 5, id="taken") == 5
            return int(await run.result())

    assert run_async(main) == 5
    assert "gone" in store.ended


def test_a_session_with_a_child_whose_parent_ended_elsewhere_is_not_kept() -> None:
    store = Watched()
    store.create_runs(
        [
            NewRun(id="parent", agent="own.quick", fingerprint=b"f" * 16, body=b"{}"),
            NewRun(id="child", agent="own.stuck", fingerprint=b"f" * 16, body=b"{}", parent="parent"),
        ]
    )
    store.register_session(NewSession(id="other", host="elsewhere", pid=1, lease_ms=60_000))
    store.claim_runs("other", 1, {"own.quick": 1})
    parent: Any = SimpleNamespace(id="parent", is_over=False)

    async def main() -> None:
        async with nl.Runtime(store) as rt:
            work = rt._work(9, until=lambda _: parent.is_over, only=parent)
            working = asyncio.create_task(work)
            await until(lambda: (run := store.read_run("child")) and run.state is State.RUNNING)
            parent.is_over = True
            rt.notify()
            await working
            child = store.read_run("child")
            assert child is not None
            assert child.session is None

    run_async(main)


@pytest.mark.parametrize("rounds", range(4))
def test_who_is_cancelled_early_leaves_no_session_behind(rounds: int) -> None:
    store = Watched()

    async def main() -> None:
        async with nl.Runtime(store) as rt:
            await rt.run(quick, 1)
            running = asyncio.create_task(rt.run(quick, 2))
            for _ in range(rounds):
                await asyncio.sleep(0)
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
        assert sorted(store.ended) == sorted(store.begun)
        assert all(run.session is None for run in store.list_runs(RunQuery()))

    run_async(main)


def test_a_kept_session_that_another_has_ended_costs_nobody_his_run() -> None:
    store = Watched()

    async def main() -> None:
        async with nl.Runtime(store) as rt:
            await rt.run(quick, 1)
            store.end_sessions(store.begun, Cause.DIED)
            assert await rt.run(quick, 2, id="two") == 2
            assert len(store.begun) == 2

    run_async(main)


def test_a_runtime_that_has_sealed_itself_runs_nothing_more() -> None:
    class Broken(Watched):
        is_broken = False

        def commit(self, batch: Sequence[Commit]) -> list[Verdict]:
            if self.is_broken:
                raise StoreBroken("a sync failed")
            return super().commit(batch)

    done: list[int] = []

    @nl.action(name="own.pay")
    async def pay(number: int) -> None:
        done.append(number)

    @nl.agent(name="own.payer")
    async def payer(number: int) -> None:
        await pay(number)

    store = Broken()

    async def main() -> None:
        async with nl.Runtime(store) as rt:
            await rt.run(payer, 1)
            store.is_broken = True
            with pytest.raises(StoreBroken, match="a sync failed"):
                await rt.run(payer, 2)
            for work in (rt.run(payer, 3, id="three"), rt.work(until_idle=True)):
                with pytest.raises(StoreBroken, match="sealed itself"):
                    await work

    run_async(main)
    assert done == [1, 2]
    assert store.read_run("three") is None


def test_a_refused_run_leaves_the_handle_of_its_namesake_alone() -> None:
    store = Watched()

    async def main() -> None:
        async with nl.Runtime(store) as rt:
            started = await rt.start(quick, 1, id="one")
            with pytest.raises(nl.IdConflict):
                await rt.run(quick, 2, id="one")
            assert rt._started["one"] is started
            assert await rt.run(quick, 1, id="one") == 1
        assert sorted(store.ended) == sorted(store.begun)

    run_async(main)
