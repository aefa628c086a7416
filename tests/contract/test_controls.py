"""Controls: cancel, pause, resume, retry, in every state, once and twice."""

from __future__ import annotations

import pytest

from ninelives.core.errors import RunFinished, UnknownRun
from ninelives.core.model.capsule import Move
from ninelives.core.model.commit import End, Escalate, Park
from ninelives.core.model.run import Control, RunRow, State
from ninelives.core.model.session import Cause
from tests.contract.benches import Bench
from tests.contract.makers import new_item


def in_state(bench: Bench, state: State) -> RunRow:
    """Bring r1 into a state."""
    if state is State.PENDING:
        bench.session("s1", lease_ms=1_000_000)
        return bench.create()
    run = bench.running()
    if state is State.RUNNING:
        return run
    if state is State.CHECKPOINTED:
        return bench.write(run, b"x", change=Park(None, "waits", 0))
    if state is State.ESCALATED:
        return bench.write(run, b"x", opens=[new_item()], change=Escalate("doubt", 0))
    if state is State.MOVED:
        return bench.store.depart_runs(["r1"], Move(id="m1", to="other", url="there"))[0]
    return bench.write(run, b"x", change=End(state))


FINAL = [State.COMPLETED, State.FAILED, State.CANCELLED]
LIVE = [State.PENDING, State.RUNNING, State.CHECKPOINTED, State.ESCALATED]


@pytest.mark.parametrize("control", Control)
def test_an_unknown_run_cannot_be_controlled(bench: Bench, control: Control) -> None:
    with pytest.raises(UnknownRun):
        bench.store.control_run("nobody", control)


@pytest.mark.parametrize("control", Control)
@pytest.mark.parametrize("state", State)
def test_asking_again_changes_nothing_more(bench: Bench, state: State, control: Control) -> None:
    in_state(bench, state)
    bench.clock.advance(5)
    try:
        first = bench.store.control_run("r1", control)
    except RunFinished:
        assert state in (*FINAL, State.MOVED)
        return
    assert first == bench.row("r1")
    before = bench.snapshot()
    bench.clock.advance(5)
    assert bench.store.control_run("r1", control) == first
    assert bench.snapshot() == before


REFUSED = [(state, control) for state in FINAL for control in (Control.PAUSE, Control.RESUME)] + [
    (State.COMPLETED, Control.CANCEL),
    (State.FAILED, Control.CANCEL),
    (State.COMPLETED, Control.RETRY),
    (State.CANCELLED, Control.RETRY),
]


@pytest.mark.parametrize(("state", "control"), REFUSED)
def test_what_makes_no_sense_after_the_end_is_refused(bench: Bench, state: State, control: Control) -> None:
    in_state(bench, state)
    before = bench.snapshot()
    with pytest.raises(RunFinished):
        bench.store.control_run("r1", control)
    assert bench.snapshot() == before


# Cancel ------------------------------------------------------------------------------------------


def test_a_pending_run_is_cancelled_at_once_and_its_parent_is_told(bench: Bench) -> None:
    bench.write(bench.running("parent"), change=Park(None, "child", 0))
    bench.create(parent="parent")
    run = bench.store.control_run("r1", Control.CANCEL)
    assert (run.state, run.cancelling, run.due_ms) == ("cancelled", True, None)
    assert (bench.row("parent").news, bench.row("parent").due_ms) == (1, bench.clock.now_ms())
    bench.claim("parent")


def test_a_running_run_is_told_and_cancelled_by_its_owner(bench: Bench) -> None:
    before = in_state(bench, State.RUNNING)
    run = bench.store.control_run("r1", Control.CANCEL)
    assert (run.state, run.cancelling, run.news, run.session) == ("running", True, 1, "s1")
    run = bench.write(before, b"x", change=End(State.CANCELLED))
    assert run.state is State.CANCELLED


@pytest.mark.parametrize("state", [State.CHECKPOINTED, State.ESCALATED])
def test_a_parked_or_escalated_run_falls_due_to_be_cancelled_by_a_worker(bench: Bench, state: State) -> None:
    in_state(bench, state)
    bench.clock.advance(5)
    run = bench.store.control_run("r1", Control.CANCEL)
    assert (run.state, run.cancelling, run.due_ms) == ("checkpointed", True, bench.clock.now_ms())
    assert bench.claim("r1").cancelling


def test_cancelling_lifts_a_pause(bench: Bench) -> None:
    in_state(bench, State.CHECKPOINTED)
    bench.store.control_run("r1", Control.PAUSE)
    bench.store.control_run("r1", Control.CANCEL)
    assert bench.claim("r1").cancelling


# Pause and resume --------------------------------------------------------------------------------


@pytest.mark.parametrize("state", LIVE)
def test_a_paused_run_is_not_claimed_until_it_is_resumed(bench: Bench, state: State) -> None:
    before = in_state(bench, state)
    run = bench.store.control_run("r1", Control.PAUSE)
    assert (run.paused, run.state, run.due_ms, run.news) == (True, state, before.due_ms, 1)
    assert bench.store.claim_runs("s1", 9, {"helper": 9}).runs == ()
    run = bench.store.control_run("r1", Control.RESUME)
    assert (run.paused, run.state, run.due_ms, run.news) == (False, state, before.due_ms, 2)


def test_a_paused_run_that_is_released_stays_paused(bench: Bench) -> None:
    in_state(bench, State.RUNNING)
    bench.store.control_run("r1", Control.PAUSE)
    bench.store.end_sessions(["s1"], Cause.DIED)
    bench.session("s2")
    assert bench.store.claim_runs("s2", 9, {"helper": 9}).runs == ()
    bench.store.control_run("r1", Control.RESUME)
    assert bench.claim("r1", "s2").paused is False


def test_a_running_run_may_go_on_writing_while_it_is_asked_to_pause(bench: Bench) -> None:
    run = in_state(bench, State.RUNNING)
    bench.store.control_run("r1", Control.PAUSE)
    assert bench.write(run, b"x").paused


# Retry -------------------------------------------------------------------------------------------


def test_a_failed_run_goes_on_where_it_was(bench: Bench) -> None:
    before = in_state(bench, State.FAILED)
    bench.clock.advance(5)
    run = bench.store.control_run("r1", Control.RETRY)
    assert (run.state, run.due_ms, run.deaths) == ("checkpointed", bench.clock.now_ms(), 0)
    assert (run.length, run.head) == (before.length, before.head)
    assert bench.claim("r1").epoch == before.epoch + 1


@pytest.mark.parametrize("state", LIVE)
def test_retrying_a_run_that_has_not_ended_changes_nothing(bench: Bench, state: State) -> None:
    run = in_state(bench, state)
    bench.clock.advance(5)
    assert bench.store.control_run("r1", Control.RETRY) == run


def test_a_cancel_that_failed_is_not_remembered_by_the_retry(bench: Bench) -> None:
    run = in_state(bench, State.RUNNING)
    bench.store.control_run("r1", Control.CANCEL)
    bench.write(run, b"x", change=End(State.FAILED))
    assert bench.store.control_run("r1", Control.RETRY).cancelling is False


def test_a_pruned_run_cannot_be_retried(bench: Bench) -> None:
    in_state(bench, State.FAILED)
    bench.clock.advance(5)
    bench.store.prune(ended_before_ms=bench.clock.now_ms())
    with pytest.raises(RunFinished):
        bench.store.control_run("r1", Control.RETRY)
