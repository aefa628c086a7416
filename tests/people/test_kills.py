"""Asking and answering, killed -9 at calls of the store: nothing is lost, and nothing counts twice."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.crash.forkserver import ForkServer
from tests.crash.stores import SERVED
from tests.people.campaign import PeopleServer, kill_everywhere
from tests.people.stories import STORIES


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    """Yield a fork server."""
    with PeopleServer() as one:
        yield one


@pytest.mark.parametrize("story", list(STORIES))
def test_a_story_ends_as_it_must_whoever_is_killed(server: ForkServer, story: str) -> None:
    verdicts = list(kill_everywhere(server, story, every=17, offset=len(story)))
    assert [verdict for verdict in verdicts if verdict.wrong] == []
    assert sum(verdict.was_killed for verdict in verdicts) >= 4


@pytest.mark.parametrize("store", SERVED)
def test_a_story_on_a_server_ends_as_it_must_whoever_is_killed(server: ForkServer, store: str) -> None:
    verdicts = list(kill_everywhere(server, "voided", store=store, every=41, offset=7))
    assert [verdict for verdict in verdicts if verdict.wrong] == []
    assert sum(verdict.was_killed for verdict in verdicts) >= 2
