"""Lives: which deaths count, what forgives them, who is given alone."""

from __future__ import annotations

from itertools import product

import pytest
from msgspec.structs import replace

from ninelives.core.errors import IllegalTransition
from ninelives.core.model.commit import End, Escalate, Park
from ninelives.core.model.run import Kind, RunRow, State
from ninelives.core.model.session import Cause
from ninelives.core.rules import deaths, run_rules
from tests.contract.makers import append, new_run

NOW = 1_000
ROW, _ = run_rules.created(new_run(), 1, 500)
RUNNING = replace(run_rules.claimed(ROW, "s1", 600), length=5)
DEATHS = (Cause.DIED, Cause.EXPIRED)


def killed(run: RunRow, cause: Cause = Cause.DIED, *, has_progressed: bool = False) -> RunRow:
    """Let the run's worker die, and another one claim it."""
    released = deaths.released(run, cause, NOW, has_progressed=has_progressed)
    return run_rules.claimed(released, "next", NOW)


@pytest.mark.parametrize(("state", "cause"), list(product(State, Cause)))
def test_releasing_in_every_state(state: State, cause: Cause) -> None:
    run = replace(RUNNING, state=state, deaths=2, death_length=1, solo_deaths=1, waits="w", is_alone=True)
    if state is not State.RUNNING:
        with pytest.raises(IllegalTransition) as caught:
            deaths.released(run, cause, NOW, has_progressed=False)
        assert caught.value.run == run.id
        return
    after = deaths.released(run, cause, NOW, has_progressed=False)
    assert (after.state, after.session, after.left_by, after.due_ms) == ("checkpointed", None, "s1", NOW)
    assert (after.epoch, after.is_alone, after.changed_ms) == (run.epoch + 1, False, NOW)
    assert after.waits == ""
    counted = (2, 1, 1) if cause is Cause.STOPPED else (3, 5, 2)
    assert (after.deaths, after.death_length, after.solo_deaths) == counted


@pytest.mark.parametrize("cause", DEATHS)
def test_from_the_second_death_without_progress_a_run_is_given_alone(cause: Cause) -> None:
    once = killed(RUNNING, cause)
    assert (once.deaths, once.is_alone, deaths.is_suspect(once)) == (1, False, False)
    twice = killed(once, cause)
    assert (twice.deaths, twice.is_alone, twice.solo_deaths) == (2, True, 0)


def test_only_deaths_alone_count_towards_the_end() -> None:
    run = killed(killed(RUNNING))
    for count in range(1, 10):
        run = killed(run)
        assert (run.solo_deaths, run.is_alone) == (count, True)


def test_progress_forgives_all_earlier_deaths() -> None:
    run = killed(killed(killed(RUNNING)))
    after = killed(run, has_progressed=True)
    assert (after.deaths, after.solo_deaths, after.is_alone) == (1, 0, False)


def test_a_worker_that_was_told_to_stop_costs_nothing_and_keeps_what_counted() -> None:
    run = killed(killed(killed(RUNNING)))
    stopped = killed(run, Cause.STOPPED)
    assert (stopped.deaths, stopped.solo_deaths, stopped.is_alone) == (run.deaths, run.solo_deaths, True)
    assert killed(run, Cause.STOPPED, has_progressed=True).deaths == 0


@pytest.mark.parametrize("change", [Park(None, "w", 0), Escalate("a person", 0), End(State.COMPLETED)])
def test_a_run_that_its_worker_left_alive_has_all_its_lives(change: Park | Escalate | End) -> None:
    run = killed(killed(killed(RUNNING)))
    after = run_rules.committed(run, append(run, change=change), NOW)
    assert isinstance(after, RunRow)
    assert (after.deaths, after.solo_deaths, after.is_alone, after.left_by) == (0, 0, False, None)


def test_surviving_changes_nothing_but_what_deaths_have_cost() -> None:
    scarred = replace(RUNNING, deaths=3, solo_deaths=2, is_alone=True, left_by="s0")
    assert deaths.survived(scarred) == RUNNING


def test_only_a_suspect_that_is_due_waits_to_run_alone() -> None:
    due = replace(ROW, deaths=2, due_ms=1)
    told = "to run solo: 2 workers died while running it, without any progress"
    assert deaths.waits_solo(due) == told
    for other in ({"deaths": 1}, {"due_ms": None}, {"state": State.FAILED}, {"paused": True}):
        assert deaths.waits_solo(replace(due, **other)) == ""


def test_records_that_every_life_may_write_again_are_no_progress() -> None:
    assert Kind.INTENT in deaths.NO_PROGRESS
    assert not deaths.NO_PROGRESS & {Kind.RESULT, Kind.FAILURE, Kind.SIGNAL, Kind.ANSWER, Kind.TURN, Kind.END}
