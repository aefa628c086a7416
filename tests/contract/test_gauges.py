"""Gauges: what metrics show of a store, counted without reading a journal."""

from __future__ import annotations

import msgspec
import pytest

from ninelives.core.model.commit import End, Park
from ninelives.core.model.gauges import HeldGroup, ItemGroup, LeftGroup, RetryingGroup, RunGroup
from ninelives.core.model.inbox import ItemKind
from ninelives.core.model.run import Control, Kind, State
from ninelives.core.model.session import Cause
from ninelives.core.model.totals import Retrying, Tally
from tests.contract.benches import Bench
from tests.contract.makers import new_item, new_run


def retrying(reason: str) -> Tally:
    """Return the totals of a run that retries a step."""
    retry = Retrying("ask#0", 1, 5, 7, 'Error: "reason":"poison"', reason)
    return Tally(retrying=msgspec.json.encode(retry).decode())


def test_an_empty_store_counts_nothing(bench: Bench) -> None:
    found = bench.store.gauges()
    assert (found.runs, found.held, found.left, found.retrying, found.items) == ((), (), (), (), ())
    assert found.at_ms == bench.clock.now_ms()
    assert sum(found.used.values()) > 0 or not found.used


def test_unfinished_runs_are_counted_by_agent_queue_and_state(bench: Bench) -> None:
    now = bench.clock.now_ms()
    bench.write(bench.running("r1", agent="b"), b"x")
    bench.write(bench.running("r2", agent="b"), b"x", change=End(State.COMPLETED))
    bench.write(bench.running("r3", agent="a"), b"x", change=Park(now + 9, "a timer", 0))
    bench.store.create_runs([new_run(f"p{n}", agent="a", due_ms=now + n) for n in (3, 2, 5)])
    bench.store.create_runs([new_run("q", agent="a", queue="slow", due_ms=now + 1)])
    bench.store.control_run("p2", Control.PAUSE)
    assert bench.reopen().gauges().runs == (
        RunGroup(agent="a", queue="default", state=State.CHECKPOINTED, runs=1, paused=0, due_ms=now + 9),
        RunGroup(agent="a", queue="default", state=State.PENDING, runs=3, paused=1, due_ms=now + 3),
        RunGroup(agent="a", queue="slow", state=State.PENDING, runs=1, paused=0, due_ms=now + 1),
        RunGroup(agent="b", queue="default", state=State.RUNNING, runs=1, paused=0, due_ms=None),
    )
    assert bench.store.gauges().held == (HeldGroup(session="s1", agent="b", runs=1),)


@pytest.mark.parametrize("cause", [Cause.DIED, Cause.EXPIRED])
def test_a_run_whose_worker_is_gone_counts_until_it_writes_again(bench: Bench, cause: Cause) -> None:
    bench.write(bench.running("r1", agent="a"), b"x")
    bench.clock.advance(7)
    bench.store.end_sessions(["s1"], cause)
    left = (LeftGroup(agent="a", runs=1, since_ms=bench.clock.now_ms()),)
    bench.clock.advance(50)
    assert bench.store.gauges().left == left
    bench.store.control_run("r1", Control.PAUSE)
    assert bench.store.gauges().left == ()
    bench.store.control_run("r1", Control.RESUME)
    bench.session("s2")
    taken = bench.claim("r1", "s2")
    assert bench.store.gauges().left == left
    bench.write(taken, b"a long call begins", kind=Kind.INTENT)
    assert bench.store.gauges().left == ()


def test_a_run_whose_worker_was_stopped_is_not_unrecovered(bench: Bench) -> None:
    bench.write(bench.running(), b"x")
    bench.store.end_sessions(["s1"], Cause.STOPPED)
    assert bench.store.gauges().left == ()


def test_runs_that_retry_are_counted_by_reason(bench: Bench) -> None:
    for name, reason in (("r1", "rate_limited"), ("r2", "transient"), ("r3", "transient")):
        bench.write(bench.running(name, agent="a"), b"x", tally=retrying(reason))
    bench.write(bench.running("old", agent="a"), b"x", tally=Tally(retrying='{"step":"ask#0"}'))
    bench.write(bench.running("ended", agent="a"), b"x", tally=retrying("timeout"), change=End(State.FAILED))
    assert bench.store.gauges().retrying == (
        RetryingGroup(agent="a", reason="", runs=1),
        RetryingGroup(agent="a", reason="rate_limited", runs=1),
        RetryingGroup(agent="a", reason="transient", runs=2),
    )


def test_open_items_are_counted_with_the_age_of_the_oldest(bench: Bench) -> None:
    first = bench.clock.now_ms()
    run = bench.write(bench.running("r1", agent="a"), b"x", opens=[new_item("i1", kind=ItemKind.DOUBT)])
    bench.clock.advance(5)
    run = bench.write(run, b"y", opens=[new_item("i2", kind=ItemKind.DOUBT), new_item("i3")])
    step = new_item().step
    kind = new_item().kind
    wanted = {
        ItemGroup(agent="a", kind=ItemKind.DOUBT, step=step, items=2, opened_ms=first),
        ItemGroup(agent="a", kind=kind, step=step, items=1, opened_ms=first + 5),
    }
    assert set(bench.store.gauges().items) == wanted
    bench.write(run, b"z", change=End(State.COMPLETED))
    assert bench.store.gauges().items == ()
