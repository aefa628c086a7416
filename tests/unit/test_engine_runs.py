"""Runs from outside: start, results, listings, many at once, several runtimes, another owner."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import ninelives as nl
from ninelives.core.errors import StoreBroken, StoreError
from ninelives.core.model.run import Claims, Control, Journal, NewRun, State
from ninelives.core.model.run import RunRow as Row
from ninelives.core.model.session import Cause, NewSession
from ninelives.runtime import ProcessOptions, wakeups
from ninelives.runtime.run_creation import new_run
from ninelives.store import Store
from tests.replay.lifetimes import QuickStore, Stage, first_life, once, run_async


@nl.action(name="double")
async def double(number: int) -> int:
    return number * 2


@nl.agent(name="doubler")
async def doubler(number: int, note: str = "") -> int:
    return await double(number)


@nl.agent(name="failer")
async def failer() -> None:
    raise KeyError("lost")


def test_start_with_a_known_id_gives_that_run_and_other_arguments_conflict() -> None:
    async def main() -> None:
        store = QuickStore()
        async with nl.Runtime(store) as rt:
            first = await rt.start(doubler, 1, id="one")
            again = await rt.start("doubler", 1, id="one")
            assert first.id == again.id == "one"
            assert len(await rt.list()) == 1
            with pytest.raises(nl.IdConflict):
                await rt.start(doubler, 2, id="one")
            assert await rt.run(doubler, 1, id="one") == 2
            assert await rt.run(doubler, 1, id="one") == 2
            with pytest.raises(nl.IdConflict):
                await rt.start(doubler, 2, id="one")

    run_async(main)


def test_a_known_id_is_found_however_the_arguments_are_written() -> None:
    async def main() -> None:
        async with nl.Runtime(QuickStore()) as rt:
            await rt.start(doubler, 1, id="one")
            await rt.start(doubler, id="one", kwargs={"number": 1})
            await rt.start(doubler, 1, "", id="one")

    run_async(main)


def test_a_start_that_fails_is_told_once() -> None:
    class Full(QuickStore):
        def create_runs(
            self, new: Sequence[NewRun], *, session: str | None = None
        ) -> list[Row | nl.UsageError]:
            raise nl.StoreUnavailable("no room")

    async def main() -> None:
        unheard: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: unheard.append(context))
        async with nl.Runtime(Full()) as rt:
            started = [rt.start(doubler, number) for number in range(3)]
            failed = await asyncio.gather(*started, return_exceptions=True)
        assert [type(error) for error in failed] == [nl.StoreUnavailable] * 3
        del failed
        gc.collect()
        await asyncio.sleep(0)
        assert unheard == []

    run_async(main)


def test_unknown_agents_and_runs_are_refused() -> None:
    async def main() -> None:
        async with nl.Runtime(QuickStore()) as rt:
            with pytest.raises(nl.UnknownAgent, match="doubler"):
                await rt.start("no such agent")
            with pytest.raises(nl.UnknownRun):
                await rt.get("no such run")

    run_async(main)


def test_a_failed_run_raises_from_its_cause() -> None:
    store = QuickStore()
    with pytest.raises(nl.RunFailed, match="KeyError") as caught:
        once(failer, store=store, id="f")
    assert isinstance(caught.value.__cause__, KeyError)
    assert caught.value.__cause__.args == ("lost",)
    with pytest.raises(nl.RunFailed) as again:
        once(failer, store=store, id="f")
    assert repr(again.value.__cause__) == repr(caught.value.__cause__)


def test_waiting_for_a_result_can_be_limited() -> None:
    async def main() -> None:
        async with nl.Runtime(QuickStore()) as rt:
            handle = await rt.start(doubler, 1)
            with pytest.raises(nl.TimedOut):
                await handle.result(timeout=0.01)
            assert await handle.status() is State.PENDING

    run_async(main)


def test_work_is_not_idle_while_a_run_is_due_however_many_wait_beside_it() -> None:
    async def main() -> None:
        async with nl.Runtime(QuickStore()) as rt:
            due = [await rt.start(doubler, number) for number in range(3)]
            await asyncio.gather(*(rt.start(doubler, number, delay=3600) for number in range(1100)))
            await rt.work(1, until_idle=True)
            assert {await run.status() for run in due} == {State.COMPLETED}
            with pytest.raises(nl.UsageError, match="concurrency=0"):
                await rt.work(0)

    run_async(main)


def test_runs_are_listed_and_looked_at() -> None:
    async def main() -> None:
        async with nl.Runtime(QuickStore()) as rt:
            for number in range(5):
                await rt.start(
                    doubler, number, id=f"d{number}", labels={"kind": "even" if number % 2 == 0 else "odd"}
                )
            await rt.start(failer, id="f")
            await rt.work(until_idle=True)
            assert [row.id for row in await rt.list(status="failed")] == ["f"]
            assert [row.id for row in await rt.list(labels={"kind": "odd"})] == ["d3", "d1"]
            page = await rt.list(agent="doubler", limit=2)
            rest = await rt.list(agent="doubler", after=page[-1].number)
            assert [row.id for row in page + rest] == ["d4", "d3", "d2", "d1", "d0"]
            run = await rt.get("d3")
            assert await run.result() == 6
            assert await run.status() is State.COMPLETED
            history = await run.history()
            assert [(one.kind, one.step) for one in history if one.kind != "intent"] == [
                ("created", ""),
                ("result", "double"),
                ("end", ""),
            ]
            point = await run.checkpoint()
            assert (point.run, point.agent, point.status, point.steps) == (
                "d3",
                "doubler",
                State.COMPLETED,
                1,
            )
            assert (await (await rt.get("f")).checkpoint()).last_error

    run_async(main)


def test_a_pending_step_shows_in_the_checkpoint() -> None:
    stage, store = Stage(), QuickStore()

    @nl.action(name="long")
    async def long() -> None:
        stage.did("long")
        await asyncio.Event().wait()

    @nl.agent(name="pending")
    async def agent() -> None:
        await long()

    async def main() -> None:
        async with nl.Runtime(store) as rt:
            run = await rt.start(agent, id="run")
            working = asyncio.create_task(rt.work())
            while "long[0]" not in [one.step for one in (await run.checkpoint()).pending]:  # noqa: ASYNC110 (nobody announces it)
                await asyncio.sleep(0.001)
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)

    run_async(main)


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_three_hundred_runs_at_once(kind: str, tmp_path: Path) -> None:
    async def main() -> None:
        store: Any = QuickStore() if kind == "memory" else f"sqlite:///{tmp_path}/runs.db"
        async with nl.Runtime(store) as rt:
            runs = await asyncio.gather(*(rt.start(doubler, number) for number in range(300)))
            await rt.work(until_idle=True)
            results = [await run.result() for run in runs]
            assert results == [2 * number for number in range(300)]

    run_async(main)


def test_concurrency_is_a_limit() -> None:
    running, most = 0, 0

    @nl.action(name="busy")
    async def busy() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.0005)
        running -= 1

    @nl.agent(name="busy-agent")
    async def agent() -> None:
        await busy()

    async def main() -> None:
        async with nl.Runtime(QuickStore()) as rt:
            for _ in range(12):
                await rt.start(agent)
            await rt.work(concurrency=3, until_idle=True)
            assert len(await rt.list(status="completed")) == 12

    run_async(main)
    assert most <= 3


def test_two_runtimes_in_one_process_share_the_work() -> None:
    async def main() -> None:
        store = QuickStore()
        async with nl.Runtime(store) as one, nl.Runtime(store) as other:
            runs = [await one.start(doubler, number) for number in range(40)]
            await asyncio.gather(one.work(until_idle=True), other.work(concurrency=5, until_idle=True))
            assert [await run.result() for run in runs] == [2 * number for number in range(40)]
            handle = await other.get(runs[0].id)
            assert await handle.result() == 0

    run_async(main)


def test_a_delayed_run_is_not_started_before_its_time() -> None:
    async def main() -> None:
        async with nl.Runtime(QuickStore()) as rt:
            later = await rt.start(doubler, 1, delay=3600)
            await rt.work(until_idle=True)
            assert await later.status() is State.PENDING
            soon = await rt.start(doubler, 2, delay=0.02)
            working = asyncio.create_task(rt.work())
            assert await soon.result() == 4
            assert await later.status() is State.PENDING
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)

    run_async(main)


def test_the_urgent_goes_first() -> None:
    order: list[str] = []

    @nl.agent(name="ordered")
    async def agent(name: str) -> None:
        order.append(name)

    async def main() -> None:
        async with nl.Runtime(QuickStore()) as rt:
            for name, priority in (("low", -1), ("normal", 0), ("high", 5)):
                await rt.start(agent, name, priority=priority)
            await rt.work(concurrency=1, until_idle=True)

    run_async(main)
    assert order == ["high", "normal", "low"]


def take_over(store: Store, run: str) -> None:
    """Let another worker own a run, as if ours had been taken for dead."""
    store.end_sessions([session.id for session in store.list_sessions()], Cause.EXPIRED)
    store.register_session(NewSession(id="usurper", host="elsewhere", pid=1))
    claimed = store.claim_runs("usurper", 1, {"fenced": 1})
    assert [row.id for row in claimed.runs] == [run]


def test_a_fenced_run_begins_and_records_nothing_and_its_code_sees_no_error() -> None:
    store, executed, seen = QuickStore(), [], []  # type: tuple[QuickStore, list[str], list[str]]

    @nl.action(name="first")
    async def first() -> str:
        take_over(store, "run")
        return "first"

    @nl.action(name="second")
    async def second() -> None:
        executed.append("second")

    @nl.agent(name="fenced")
    async def agent() -> None:
        try:
            seen.append(await first())
            await second()
        except Exception as error:
            seen.append(repr(error))

    async def main() -> None:
        async with nl.Runtime(store, lease_seconds=60) as rt:
            await rt.start(agent, id="run")
            with pytest.raises(nl.LeaseLost):
                await rt.work()

    run_async(main)
    row = store.read_run("run")
    assert row is not None
    assert row.session == "usurper"
    assert [one.kind.value for one in store.load_journal("run").records] == ["created"]
    assert executed == []
    assert seen == []


@pytest.mark.parametrize("end", ["returns", "raises", "next turn", "is cancelled", "undoes"])
@pytest.mark.parametrize("is_dedicated", [True, False])
def test_a_run_that_ends_after_the_store_broke_raises_it_and_does_not_hang(
    end: str, is_dedicated: bool
) -> None:
    store = QuickStore()

    @nl.agent(name="ender")
    async def agent() -> Any:
        if end == "undoes":
            nl.on_failure(double, 2)
            await double(1)
        if end == "is cancelled":
            store.control_run("run", Control.CANCEL)
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
        rt._committer._seal_off(StoreBroken("a sync failed"))
        if end in ("raises", "undoes"):
            raise ValueError(end)
        return nl.next_turn() if end == "next turn" else None

    rt: Any = None

    async def main() -> None:
        nonlocal rt
        async with nl.Runtime(store, process=ProcessOptions(is_dedicated=is_dedicated)) as rt:
            with pytest.raises(StoreBroken, match="a sync failed"):
                await rt.run(agent, id="run")

    run_async(main)


class Deaf(QuickStore):
    """A store whose waits fail, and whose reads do, if it is broken."""

    fails: StoreError | None = None
    is_broken = False

    def __init__(self) -> None:
        super().__init__()
        self.waits, self.failed = threading.Event(), threading.Event()

    def wait_for_work(self, timeout_seconds: float) -> bool:
        """Fail, or wait."""
        self.waits.set()
        if self.fails is not None:
            self.failed.set()
            raise self.fails
        return super().wait_for_work(timeout_seconds)

    def wait_for_output(self, timeout_seconds: float) -> bool:
        """Fail, or wait."""
        return self.wait_for_work(timeout_seconds)

    def read_run(self, run: str) -> Row | None:
        """Fail, or read."""
        if self.is_broken and self.fails is not None:
            raise self.fails
        return super().read_run(run)

    def load_journal(self, run: str, *, since: int | None = None) -> Journal:
        """Fail, or load."""
        self.read_run(run)
        return super().load_journal(run, since=since)


@pytest.mark.parametrize("is_broken", [True, False])
@pytest.mark.parametrize("waits", ["result", "stream"])
def test_who_waits_for_a_run_does_not_hang_when_the_wait_for_wake_ups_fails(
    waits: str, is_broken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wakeups, "LISTEN_SECONDS", 0.01)
    store = Deaf()

    async def waited(run: nl.Run) -> Any:
        if waits == "result":
            return await run.result()
        return [item async for item in run.stream()]

    async def main() -> Any:
        async with nl.Runtime(store) as rt:
            waiting = asyncio.create_task(waited(await rt.start(doubler, 2, id="run")))
            assert await asyncio.to_thread(store.waits.wait, 20)
            store.is_broken, store.fails = is_broken, StoreBroken("a sync failed")
            assert await asyncio.to_thread(store.failed.wait, 20)
            if not is_broken:
                async with nl.Runtime(store) as other:
                    await other.work(until_idle=True)
            return await waiting

    if is_broken:
        with pytest.raises(StoreBroken):
            run_async(main)
    else:
        assert run_async(main) == (4 if waits == "result" else [])


def test_a_worker_that_stops_leaves_its_runs_to_the_next() -> None:
    stage, store = Stage(), QuickStore()

    @nl.action(name="stop")
    async def stop() -> str:
        await stage.stop_here()
        return "went on"

    @nl.agent(name="handed-over")
    async def agent() -> str:
        return await stop()

    async def main() -> None:
        await first_life(stage, store, agent)
        row = store.read_run("run")
        assert row is not None
        assert row.state is State.CHECKPOINTED
        assert row.session is None
        assert row.deaths == 0
        async with nl.Runtime(store) as rt:
            assert await rt.run(agent, id="run") == "went on"

    run_async(main)


def test_run_works_on_sqlite_from_a_script(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/runs.db"
    assert nl.run(doubler, 21, id="x", store=url) == 42
    assert nl.run(doubler, 21, id="x", store=url) == 42
    with pytest.raises(nl.RunFailed):
        nl.run(failer, store=url)


def test_run_in_an_event_loop_says_what_to_use_there() -> None:
    async def main() -> None:
        nl.run(doubler, 4, store="memory:")

    with pytest.raises(nl.UsageError, match=r"await rt\.run"):
        asyncio.run(main())


@pytest.mark.parametrize("left", [0, 1, 2])
def test_one_who_no_longer_waits_for_his_start_leaves_those_of_the_others_alone(left: int) -> None:
    async def main() -> None:
        async with nl.Runtime(QuickStore()) as rt:
            starting = [
                asyncio.create_task(rt.start(doubler, number, id=f"run-{number}")) for number in range(3)
            ]
            await asyncio.sleep(0)
            starting[left].cancel()
            others = [one for number, one in enumerate(starting) if number != left]
            assert [handle.id for handle in await asyncio.gather(*others)] == [
                f"run-{number}" for number in range(3) if number != left
            ]

    run_async(main)


@nl.agent(name="receiver")
async def receiver() -> Any:
    return await nl.receive("go")


class Reread(QuickStore):
    """Notes which journals are read, and does something just before or after a run is claimed."""

    def __init__(
        self,
        before: Callable[[QuickStore], object] = lambda _: None,
        after: Callable[[QuickStore], object] = lambda _: None,
    ) -> None:
        super().__init__()
        self.read: list[str] = []
        self.claims = 0
        self._before, self._after = before, after

    def create_runs(self, new: Sequence[NewRun], *, session: str | None = None) -> list[Row | nl.UsageError]:
        """Create, and let it happen if that is a claim."""
        created = super().create_runs(new, session=session)
        if any(isinstance(run, Row) and run.session is not None for run in created):
            self._let_happen()
        return created

    def _let_happen(self) -> None:
        after, self._after = self._after, lambda _: None
        after(self)

    def claim_runs(self, session: str, limit: int, agents: Mapping[str, int], **given: Any) -> Claims:
        """Claim, and let it happen."""
        before, self._before = self._before, lambda _: None
        before(self)
        claims = super().claim_runs(session, limit, agents, **given)
        self.claims += len(claims.runs)
        if claims.runs:
            self._let_happen()
        return claims

    def load_journal(self, run: str, *, since: int | None = None) -> Journal:
        """Read it."""
        self.read.append(run)
        return super().load_journal(run, since=since)


def test_who_has_just_created_a_run_does_not_read_it_back() -> None:
    store = Reread()

    async def main() -> None:
        async with nl.Runtime(store) as rt:
            assert await rt.run(doubler, 1, id="here") == 2
            assert (store.read, store.claims) == ([], 0)
            assert not rt._executor.born

    run_async(main)


def test_a_run_of_the_same_id_with_another_journal_is_read() -> None:
    store = Reread()

    async def main() -> None:
        async with nl.Runtime(store) as rt:
            asked, kept = [await new_run(rt, doubler, (number,), None, id="one") for number in (1, 21)]
            store.create_runs([replace(kept, fingerprint=asked.fingerprint)])
            assert await rt.run(doubler, 1, id="one") == 42
            assert store.read == ["one"]

    run_async(main)


def test_what_was_sent_to_a_run_before_it_was_claimed_is_not_missed() -> None:
    store = Reread(lambda it: it.send_signal("one", "go", b"7"))

    async def main() -> None:
        async with nl.Runtime(store) as rt:
            await rt.start(receiver, id="one")
            assert await rt.run(receiver, id="one") == 7
            assert store.read == ["one"]

    run_async(main)


def test_who_cancels_a_run_while_it_is_being_claimed_keeps_it_from_its_first_step() -> None:
    def cancel(store: QuickStore) -> None:
        store.control_run("one", Control.CANCEL)
        deadline = time.monotonic() + 60
        while not rang and time.monotonic() < deadline:
            time.sleep(0.001)

    store, rang = Reread(after=cancel), []

    async def main() -> None:
        async with nl.Runtime(store) as rt:
            call_soon = rt._loop.call_soon_threadsafe

            def ring(*given: Any) -> Any:
                row = store.read_run("one")
                handle = call_soon(*given)
                rang.extend([1] if row is not None and row.cancelling else [])
                return handle

            rt._loop.call_soon_threadsafe = ring  # type: ignore[method-assign, assignment]
            with pytest.raises(nl.RunCancelled):
                await rt.run(counting, id="one")

    run_async(main)
    assert (rang[:1], counted) == ([1], [])


def test_a_store_that_is_away_when_a_newborn_run_is_looked_at_costs_it_nothing() -> None:
    class Away(Reread):
        is_away = False

        def read_run(self, run: str) -> Row | None:
            if self.is_away:
                self.is_away = False
                raise nl.StoreUnavailable("away")
            return super().read_run(run)

    def ring(store: Any) -> None:
        rt._executor.news.wakeups += 1  # something happened while it was being created
        store.is_away = True

    store = Away(after=ring)
    rt: Any = nl.Runtime(store)

    async def main() -> None:
        async with rt:
            assert await rt.run(doubler, 21, id="one") == 42
        assert not store.is_away
        assert store.read == []

    run_async(main)


counted: list[int] = []


@nl.action(name="count")
async def count(number: int) -> int:
    counted.append(number)
    await asyncio.sleep(0.01)
    return number


@nl.agent(name="counting")
async def counting() -> None:
    for number in range(300):
        await count(number)


@pytest.mark.parametrize("fails", [False, True])
def test_a_pruned_run_says_how_it_ended_and_that_the_rest_is_gone(fails: bool) -> None:
    store = QuickStore()

    @nl.agent(name="pruned.ends")
    async def agent() -> int:
        if fails:
            raise ValueError("no")
        return 7

    async def main() -> nl.RunError:
        async with nl.Runtime(store) as rt:
            run = await rt.start(agent, id="run")
            await rt.work(until_idle=True)
            store.prune(ended_before_ms=store.now_ms() + 1_000)
            with pytest.raises(nl.RunError) as error:
                await (await rt.get(run.id)).result()
            return error.value

    error = run_async(main)
    assert isinstance(error, nl.RunFailed) is fails
    assert ("the run failed, and its error" if fails else "the run completed, and its result") in str(error)
    assert "has been pruned" in str(error)
