"""The same with real processes, a real store and real kills."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest

from tests.crash.forkserver import ForkServer
from tests.crash.stores import SERVED, scratch
from tests.replay.processes import ReplayServer, perform
from tests.replay.programs import program_of

FIRST, PROGRAMS, CHUNK, SOME = 3000, 32, 8, 6


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    """Yield a fork server."""
    with ReplayServer() as running:
        yield running


@pytest.mark.parametrize("first", range(FIRST, FIRST + PROGRAMS, CHUNK))
def test_killed_processes_leave_programs_that_end_as_if_nothing_had_happened(
    server: ForkServer, first: int
) -> None:
    deaths = 0
    for seed in range(first, first + CHUNK):
        with scratch() as home:
            killed, violations = perform(server, home, seed, Random(seed))
        assert violations == [], f"program {seed}: {program_of(seed)}"
        deaths += killed
    assert deaths > 0


@pytest.mark.parametrize("store", SERVED)
def test_so_they_do_on_a_server(server: ForkServer, store: str) -> None:
    deaths = 0
    for seed in range(FIRST, FIRST + SOME):
        with scratch(store) as home:
            killed, violations = perform(server, home, seed, Random(seed))
        assert violations == [], f"program {seed}: {program_of(seed)}"
        deaths += killed
    assert deaths > 0
