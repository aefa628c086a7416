"""The short ways through a step give what the long ones give, and starve nobody."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

import ninelives as nl
from ninelives.core.errors import LeaseLost, NineLivesError
from ninelives.core.journal.replay import StepBody, write_body
from ninelives.core.model.commit import Commit, Verdict
from ninelives.core.model.run import Journal, RunRow
from ninelives.core.model.session import Cause
from ninelives.core.values.fingerprint import taker
from ninelives.engine.commit import loop_commits
from ninelives.engine.run.delivery import Delivery
from ninelives.engine.worker import executor
from ninelives.runtime import ProcessOptions
from ninelives.store import Store
from ninelives.stores.clock import SystemClock
from ninelives.stores.memory import MemoryStore
from tests.replay.lifetimes import QuickStore, run_async


@nl.action(name="echo")
async def echo(value: Any) -> Any:
    return value


class Watched(QuickStore):
    """Notes which threads commit, and how often runs are read."""

    def __init__(self) -> None:
        super().__init__()
        self.threads: list[str] = []
        self.reads: list[str] = []

    def commit(self, batch: Sequence[Commit]) -> list[Verdict]:
        self.threads.append(threading.current_thread().name)
        return super().commit(batch)

    def read_run(self, run: str) -> RunRow | None:
        self.reads.append(run)
        return super().read_run(run)

    def load_journal(self, run: str, *, since: int | None = None) -> Journal:
        self.reads.append(run)
        return super().load_journal(run, since=since)


class Silent(MemoryStore):
    """Wakes nobody, so that nothing but the steps themselves can make the event loop go round."""

    def __init__(self) -> None:
        super().__init__(SystemClock())
        self.is_over = threading.Event()

    def wait_for_work(self, timeout_seconds: float) -> bool:
        self.is_over.wait()
        return super().wait_for_work(timeout_seconds)


def dedicated(store: Store) -> nl.Runtime:
    """Return a runtime as `nl.run` makes one: its event loop serves nobody else."""
    return nl.Runtime(store, process=ProcessOptions(is_dedicated=True))


def test_a_lone_branch_of_a_script_commits_without_a_change_of_thread() -> None:
    @nl.agent(name="counter")
    async def counter(steps: int) -> int:
        for number in range(steps):
            assert await echo(number) == number
        return steps

    async def main() -> None:
        store = Watched()
        async with dedicated(store) as rt:
            assert await rt.run(counter, 200, id="one") == 200
        here = threading.current_thread().name
        assert sum(name == here for name in store.threads) > 20  # others may have been busy meanwhile
        assert store.read_run("one") is not None
        assert super(Watched, store).load_journal("one", since=0).run.length == 202

    run_async(main)


def test_a_timer_that_is_due_costs_a_lone_branch_no_change_of_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        loop_commits, "_POLL_SECONDS", 0.0
    )  # after every commit, and every time a timer is due
    rung: list[bool] = []

    @nl.action(name="timed")
    async def timed(number: int) -> int:
        asyncio.get_running_loop().call_later(0, rung.append, True)
        return number

    @nl.agent(name="ringing")
    async def ringing() -> None:
        for number in range(50):
            await timed(number)

    threads: set[str] = set()

    class Quiet(Silent):
        def commit(self, batch: Sequence[Commit]) -> list[Verdict]:
            threads.add(threading.current_thread().name)
            return super().commit(batch)

    async def main() -> None:
        store = Quiet()
        try:
            async with dedicated(store) as rt:
                await rt.run(ringing)
        finally:
            store.is_over.set()
        assert len(rung) == 50
        assert threads == {threading.current_thread().name}

    run_async(main)


def test_a_lone_branch_that_is_fenced_on_its_own_thread_is_told_nothing() -> None:
    told: list[int] = []

    @nl.agent(name="fenced")
    async def fenced() -> None:
        told.append(await echo(0))
        told.append(await echo(1))

    class Fencing(Silent):
        def commit(self, batch: Sequence[Commit]) -> list[Verdict]:
            if told:  # after the first, the loop is not looked at for a while
                self.end_sessions([one.id for one in self.list_sessions()], Cause.DIED)
            return super().commit(batch)

    async def main() -> None:
        store = Fencing()
        try:
            async with dedicated(store) as rt:
                with pytest.raises(LeaseLost):
                    await rt.run(fenced)
        finally:
            store.is_over.set()

    run_async(main)
    assert told == [0]


def test_timers_ring_while_a_script_takes_step_after_step() -> None:
    @nl.agent(name="busy")
    async def busy() -> bool:
        await echo("begin")  # what came with the start is over
        rung: list[bool] = []
        asyncio.get_running_loop().call_later(0.02, rung.append, True)
        for number in range(100_000):
            await echo(number % 7)
            if rung:
                return True
        return False

    async def main() -> None:
        store = Silent()
        try:
            async with dedicated(store) as rt:
                assert await rt.run(busy) is True
        finally:
            store.is_over.set()

    run_async(main)


def test_a_branch_that_comes_while_the_only_one_waits_is_told_after_it() -> None:
    lives: list[list[str]] = []

    @nl.agent(name="surprised")
    async def surprised() -> None:
        told: list[str] = []
        lives.append(told)
        tasks: list[asyncio.Task[None]] = []

        async def other() -> None:
            told.append(await echo("other"))

        def surprise() -> None:
            tasks.append(asyncio.get_running_loop().create_task(other()))

        asyncio.get_running_loop().call_soon(surprise)
        told.append(await echo("first"))
        told.append(await echo("second"))
        await asyncio.gather(*tasks)

    async def main() -> None:
        store = QuickStore()
        async with nl.Runtime(store) as rt:
            run = await rt.start(surprised, id="one")
            await rt.work(until_idle=True)
            recorded = [entry.text for entry in await run.history() if entry.kind == "result"]
            assert len(recorded) == 3
            order = [msgspec.json.decode(text)["v"] for text in recorded]
            assert lives[-1] == order
            assert order.index("first") < order.index("second")

    run_async(main)


def test_the_result_of_a_run_that_completed_here_is_not_read_again() -> None:
    @nl.agent(name="quick")
    async def quick(number: int) -> list[int]:
        return [await echo(number)]

    async def main() -> None:
        store = Watched()
        async with nl.Runtime(store) as rt:
            runs = [await rt.start(quick, number, id=f"r{number}") for number in range(5)]
            await rt.work(until_idle=True)
            store.reads.clear()
            found = [await run.result() for run in runs]
            assert found == [[0], [1], [2], [3], [4]]
            assert store.reads == []
            found[0].append(9)
            assert await runs[0].result() == [0]
            again = await rt.get("r3")
            assert await again.result() == [3]
            assert store.reads != []

    run_async(main)


class Counted(QuickStore):
    """Notes which runs were loaded together."""

    def __init__(self) -> None:
        super().__init__()
        self.loads: list[list[str]] = []

    def load_journals(self, runs: Sequence[str]) -> list[Journal | NineLivesError]:
        self.loads.append(sorted(runs))
        return super().load_journals(runs)


def test_runs_with_a_short_turn_are_loaded_together_however_long_they_have_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    @nl.agent(name="veteran")
    async def veteran(turn: int) -> Any:
        for number in range(6):
            await echo(number)
        return nl.next_turn(turn + 1) if turn < 3 else await nl.receive("go")

    monkeypatch.setattr(executor, "INLINE_RECORDS", 10)
    store = Counted()

    async def main() -> None:
        async with nl.Runtime(store) as rt:
            runs = [await rt.start(veteran, 0, id=name) for name in ("a", "b")]
            await rt.work(until_idle=True)
            store.loads.clear()
            for run in runs:
                await run.signal("go", run.id)
            await rt.work(until_idle=True)
            assert [await run.result() for run in runs] == ["a", "b"]

    run_async(main)
    assert store.loads == [["a", "b"]]


def test_a_failed_run_is_read_from_the_store() -> None:
    @nl.agent(name="fails")
    async def fails() -> None:
        raise KeyError("lost")

    async def main() -> None:
        async with nl.Runtime(QuickStore()) as rt:
            run = await rt.start(fails, id="one")
            await rt.work(until_idle=True)
            with pytest.raises(nl.RunFailed):
                await run.result()

    run_async(main)


@pytest.mark.parametrize("value", [1, "text", 'a"b\\c', "ü" * 100, None, [1, {"k": "v"}], "x" * 500])
def test_a_body_is_written_as_the_encoder_writes_it(value: Any) -> None:
    def step(given: Any, more: Any = None) -> None: ...

    asked = taker(inspect.signature(step))((value,), {})
    body = StepBody(f=asked.digest.hex(), a=asked.preview(), v=msgspec.Raw(msgspec.json.encode(value)))
    assert write_body(asked, value=msgspec.json.encode(value)) == msgspec.json.encode(body)


def test_a_single_branch_is_told_what_is_recorded_at_once_and_starves_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    steps, checks, rounds = 1000, 0, 0
    seen: list[tuple[int, int]] = []
    check = Delivery.check

    def counting(self: Delivery, busy: frozenset[object]) -> None:
        nonlocal checks
        checks += 1
        check(self, busy)

    monkeypatch.setattr(Delivery, "check", counting)

    @nl.agent(name="patient")
    async def patient() -> list[int]:
        before = checks, rounds
        told = [await echo(number) for number in range(steps)]
        seen.append((checks - before[0], rounds - before[1]))
        await nl.receive("go")
        return told

    async def go_round() -> None:
        nonlocal rounds
        while True:
            rounds += 1
            await asyncio.sleep(0)

    async def main() -> None:
        store = QuickStore()
        async with nl.Runtime(store) as rt:
            run = await rt.start(patient, id="one")
            await rt.work(until_idle=True)
            await run.signal("go")
        async with nl.Runtime(store) as rt:
            beside = asyncio.create_task(go_round())
            assert await rt.run(patient, id="one") == list(range(steps))
            beside.cancel()

    run_async(main)
    told, others = seen[-1]
    assert told < steps // 10
    assert others >= steps // 100


def test_what_is_ready_of_a_run_runs_before_its_single_branch_is_told() -> None:
    @nl.agent(name="flagged")
    async def flagged() -> bool:
        flags: list[bool] = []
        asyncio.get_running_loop().call_soon(flags.append, True)
        await echo("first")
        found: bool = await echo(bool(flags))
        await nl.receive("go")
        return found

    async def main() -> None:
        store = QuickStore()
        async with nl.Runtime(store) as rt:
            run = await rt.start(flagged, id="one")
            await rt.work(until_idle=True)
            await run.signal("go")
        async with nl.Runtime(store) as rt:
            assert await rt.run(flagged, id="one") is True

    run_async(main)
