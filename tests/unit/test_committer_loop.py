"""Commits awaited by coroutines: the loop is never held up, nothing is lost when a wait is cancelled."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence

import pytest

from ninelives.core.errors import StoreBroken, StoreUnavailable
from ninelives.core.model.commit import Commit, Outcome
from ninelives.engine.commit.loop_commits import LoopCommits
from tests.unit.test_committer import LONG_SECONDS, Bench, Gate, bad, results


def run(bench: Bench, main: object) -> None:
    """Run a coroutine, at most for a while, and close the committer."""
    try:
        asyncio.run(asyncio.wait_for(main, LONG_SECONDS))  # type: ignore[arg-type]
    finally:
        bench.committer.close()


def test_coroutines_share_few_transactions_and_keep_each_runs_order() -> None:
    bench, each = Bench(50), 10

    async def main() -> None:
        commits = LoopCommits(bench.committer, asyncio.get_running_loop())

        async def work(number: int) -> None:
            for one in range(each):
                verdict = await commits.commit(bench.tails[number], results(b"%d" % one))
                assert verdict.outcome is Outcome.COMMITTED

        await asyncio.gather(*(work(number) for number in range(50)))

    run(bench, main())
    for tail in bench.tails:
        assert bench.bodies(tail.run) == [b"%d" % one for one in range(each)]
    assert len(bench.store.batches) < 50 * each / 4


def test_tickets_of_one_run_submitted_together_keep_their_order() -> None:
    bench = Bench()

    async def main() -> None:
        commits = LoopCommits(bench.committer, asyncio.get_running_loop())
        tail = bench.tails[0]
        verdicts = await asyncio.gather(*(commits.commit(tail, results(b"%03d" % n)) for n in range(200)))
        assert {verdict.outcome for verdict in verdicts} == {Outcome.COMMITTED}

    run(bench, main())
    assert bench.bodies("r0") == [b"%03d" % number for number in range(200)]


def test_the_loop_goes_on_while_the_store_is_slow() -> None:
    bench = Bench()
    gate = Gate()
    bench.store.before = gate

    async def main() -> None:
        commits = LoopCommits(bench.committer, asyncio.get_running_loop())
        waiting = asyncio.create_task(commits.commit(bench.tails[0], results(b"x")))
        await asyncio.to_thread(gate.reached.wait, LONG_SECONDS)
        for _ in range(100):
            await asyncio.sleep(0)
        assert not waiting.done()
        gate.opened.set()
        assert (await waiting).outcome is Outcome.COMMITTED

    run(bench, main())


def test_the_timers_of_a_loop_that_commits_by_itself_run_while_the_store_is_away() -> None:
    bench, is_back = Bench(), threading.Event()

    def away(_: object) -> None:
        if not is_back.is_set() and len(bench.store.batches) < 6:
            raise StoreUnavailable("the disk is full")

    bench.store.before = away

    async def main() -> None:
        loop = asyncio.get_running_loop()
        commits = LoopCommits(bench.committer, loop, is_dedicated=True)
        loop.call_later(0.01, is_back.set)
        (draft,) = results(b"x")
        appended = commits.append(bench.tails[0], draft, is_single=True)
        assert appended is not None
        assert (await appended).outcome is Outcome.COMMITTED

    run(bench, main())
    assert bench.bodies("r0") == [b"x"]
    assert len(bench.store.batches) < 6, "no timer ran before the store gave in"


def test_each_coroutine_gets_its_own_verdict() -> None:
    bench = Bench()
    bench.store.before = bad(b"bad")

    async def main() -> None:
        commits = LoopCommits(bench.committer, asyncio.get_running_loop())
        good, refused, other = await asyncio.gather(
            commits.commit(bench.tails[0], results(b"good")),
            commits.commit(bench.tails[1], results(b"bad")),
            commits.commit(bench.tails[2], results(b"good")),
        )
        assert [one.outcome for one in (good, refused, other)] == ["committed", "refused", "committed"]
        assert [one.run for one in (good, refused, other)] == ["r0", "r1", "r2"]

    run(bench, main())


def test_cancelling_a_wait_neither_loses_nor_doubles_the_commit() -> None:
    bench = Bench()
    gate = Gate()
    bench.store.before = gate

    async def main() -> None:
        commits = LoopCommits(bench.committer, asyncio.get_running_loop())
        under_way = asyncio.create_task(commits.commit(bench.tails[0], results(b"1")))
        await asyncio.to_thread(gate.reached.wait, LONG_SECONDS)
        queued = asyncio.create_task(commits.commit(bench.tails[0], results(b"2")))
        await asyncio.sleep(0)
        for task in (under_way, queued):
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        gate.opened.set()
        assert (await commits.commit(bench.tails[0], results(b"3"))).outcome is Outcome.COMMITTED
        assert commits._waiting == 0

    run(bench, main())
    assert bench.bodies("r0") == [b"1", b"2", b"3"]
    assert bench.fatal == []


def test_everybody_who_awaits_hears_of_the_end() -> None:
    bench = Bench()

    def fail(_: Sequence[Commit]) -> None:
        raise StoreBroken("a sync failed")

    bench.store.before = fail

    async def main() -> None:
        commits = LoopCommits(bench.committer, asyncio.get_running_loop())
        all_of_them = [commits.commit(tail, results(b"x")) for tail in bench.tails]
        found = await asyncio.gather(*all_of_them, return_exceptions=True)
        assert [type(one) for one in found] == [StoreBroken] * 3
        with pytest.raises(StoreBroken):
            await commits.commit(bench.tails[0], results(b"later"))

    run(bench, main())
    assert len(bench.fatal) == 1


def test_a_loop_that_was_closed_does_not_end_the_process() -> None:
    bench = Bench()
    gate = Gate()
    bench.store.before = gate

    async def main() -> None:
        commits = LoopCommits(bench.committer, asyncio.get_running_loop())
        task = asyncio.create_task(commits.commit(bench.tails[0], results(b"x")))
        await asyncio.to_thread(gate.reached.wait, LONG_SECONDS)
        task.cancel()

    asyncio.run(main())  # as after Ctrl-C: the loop is gone while its commit is under way
    gate.opened.set()
    assert bench.commit(bench.tails[1], b"others go on") is Outcome.COMMITTED
    bench.committer.close()
    assert bench.bodies("r0") == [b"x"]
    assert bench.fatal == []


def test_two_loops_each_get_their_own() -> None:
    bench = Bench()
    start = threading.Barrier(2)

    def one(number: int) -> None:
        async def main() -> None:
            commits = LoopCommits(bench.committer, asyncio.get_running_loop())
            start.wait(LONG_SECONDS)
            for step in range(30):
                verdict = await commits.commit(bench.tails[number], results(b"%d" % step))
                assert verdict.run == f"r{number}"

        asyncio.run(main())

    for done in [bench.later(lambda number=number: one(number)) for number in range(2)]:  # type: ignore[misc]
        done.result(LONG_SECONDS)
    bench.committer.close()
    for number in range(2):
        assert bench.bodies(f"r{number}") == [b"%d" % step for step in range(30)]
