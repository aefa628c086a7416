"""Small programs, killed before and after every call of the store."""

from __future__ import annotations

from itertools import count, islice

import pytest

from tests.replay.campaign import Case, at_every_call, perform
from tests.replay.judge import _kept_draws
from tests.replay.lives import Kill
from tests.replay.programs import program_of
from tests.replay.world import Event

SMALL_CHARACTERS, PROGRAMS = 420, 24


def _small() -> list[int]:
    seeds = (seed for seed in count(5000) if len(repr(program_of(seed))) < SMALL_CHARACTERS)
    return list(islice(seeds, PROGRAMS))


@pytest.mark.parametrize("seed", _small())
def test_a_program_can_be_killed_at_every_call_of_the_store(seed: int) -> None:
    deaths = 0
    for verdict in at_every_call(seed):
        assert not verdict.violations, str(verdict)
        deaths += len(verdict.deaths)
    assert deaths > 10  # how often the store is called depends on how calls meet in batches: 20 has been seen


LOST_DECISION = 194332135990
"""A pipelined program that draws a random number after a decision which is lost with its first life."""


def test_what_is_drawn_after_a_lost_decision_may_be_another() -> None:
    verdict = perform(Case(LOST_DECISION, (Kill("before", 9),)))
    assert verdict.deaths
    assert not verdict.violations, str(verdict)


def test_what_the_world_has_seen_rests_on_draws_that_must_not_change() -> None:
    program = program_of(LOST_DECISION)
    assert program.is_pipelined
    events = [
        Event("life", 1),
        Event("drawn", 1, label="a", role="random"),
        Event("asked", 1, label="act"),
        Event("drawn", 1, label="b", role="random"),
        Event("start", 1, label="act", role="action"),
        Event("life", 2),
        Event("drawn", 2, label="c", role="random"),
    ]
    assert [one.label for one in _kept_draws(program, events)] == ["a", "c"]
