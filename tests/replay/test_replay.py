"""Faithful replay: killed anywhere, a program ends as some run of it that never crashed."""

from __future__ import annotations

from random import Random

import pytest

from tests.replay.campaign import at_random
from tests.replay.programs import program_of

FIRST, PROGRAMS, CHUNK = 1000, 550, 50


@pytest.mark.parametrize("first", range(FIRST, FIRST + PROGRAMS, CHUNK))
def test_killed_programs_end_as_if_nothing_had_happened(first: int) -> None:
    deaths = 0
    for seed in range(first, first + CHUNK):
        for verdict in at_random(seed, Random(seed)):
            assert not verdict.violations, str(verdict)
            deaths += len(verdict.deaths)
    assert deaths > CHUNK


def test_the_programs_are_of_every_kind() -> None:
    made = [program_of(seed) for seed in range(FIRST, FIRST + PROGRAMS)]
    assert {(one.is_async, one.is_pipelined, one.is_shared) for one in made} == {
        (a, b, c) for a in (True, False) for b in (True, False) for c in (True, False)
    }
    text = repr(made)
    for node in (
        "Call",
        "Drawn",
        "Choice",
        "Forked",
        "Mapped",
        "Race",
        "Limited",
        "Dropped",
        "Named",
        "Tried",
    ):
        assert f"{node}(" in text
    for word in (
        "group",
        "settled",
        "asyncio",
        "'nl'",
        "flaky",
        "giveup",
        "cancel",
        "oops",
        "listed",
        "nested",
        "plain",
    ):
        assert word in text
    assert any(len(one.turns) > 1 for one in made)
