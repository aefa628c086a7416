"""Killed around every call of the store: a run keeps the answer it has; the cache is right, or empty."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw

from ninelives.core.journal.replay import read_body
from ninelives.core.model.run import Kind
from ninelives.models import entries
from tests.cache.cache_lives import CacheServer, asked
from tests.crash.forkserver import ForkServer
from tests.crash.stores import SERVED, bury, open_at, scratch

LIFE = "tests.cache.cache_lives:life"
QUESTION, OTHERWISE = "What is it for?", "what is it for"


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    with CacheServer() as server:
        yield server


def lives(server: ForkServer, home: Path, run: str, question: str) -> dict[str, Any]:
    ended: dict[str, Any] = server.run(LIFE, home=str(home), run=run, question=question).result()
    return ended


def judge(home: Path, run: str, result: str) -> None:
    """Check that the journal has the run's answer, and that what the cache holds is an answer of a run."""
    store = open_at(home)
    records = store.load_journal(run, since=0).records
    (answer,) = [read_body(one) for one in records if one.kind is Kind.RESULT and "k_ask" in one.step]
    assert answer.v == Raw(f'"{result}"'.encode())
    for kept in entries.answers(store):
        assert kept.answer is not None
        of = store.load_journal(kept.answer.run, since=0).records
        (recorded,) = [read_body(one) for one in of if one.kind is Kind.RESULT and one.step == kept.answer.at]
        assert recorded.v == kept.answer.value
    store.close()


def killed_while_it_asks(server: ForkServer, home: Path, call: int, side: str) -> None:
    death = server.run(LIFE, home=str(home), run="one", question=QUESTION, call=call, side=side)
    assert death.was_killed
    bury(home)
    result = lives(server, home, "one", QUESTION)["result"]
    judge(home, "one", result)
    times = len(asked(home))
    assert times <= 2
    # The next run is answered by the cache, or its model is asked: never another answer than that run's own.
    second = lives(server, home, "two", OTHERWISE)["result"]
    judge(home, "two", second)
    assert second == (result if len(asked(home)) == times else f"answer {times + 1}")


def killed_while_it_is_answered(server: ForkServer, home: Path, call: int, side: str) -> None:
    first = lives(server, home, "one", QUESTION)["result"]
    assert server.run(LIFE, home=str(home), run="two", question=OTHERWISE, call=call, side=side).was_killed
    bury(home)
    assert lives(server, home, "two", OTHERWISE)["result"] == first
    judge(home, "two", first)
    assert asked(home) == [QUESTION]


SCENES = {"asks": killed_while_it_asks, "is answered": killed_while_it_is_answered}


@pytest.mark.parametrize("scene", list(SCENES))
def test_killed_around_every_call(server: ForkServer, scene: str) -> None:
    with scratch() as home:
        most = lives(server, home, "one", QUESTION)["calls"]
        if scene == "is answered":
            most = lives(server, home, "two", OTHERWISE)["calls"]
    for call in range(1, most + 1):
        for side in ("before", "after"):
            with scratch() as home:
                SCENES[scene](server, home, call, side)


@pytest.mark.parametrize("call", [2, 3])
@pytest.mark.parametrize("scene", list(SCENES))
@pytest.mark.parametrize("served", SERVED)
def test_killed_on_a_server(server: ForkServer, served: str, scene: str, call: int) -> None:
    with scratch(served) as home:
        SCENES[scene](server, home, call, "after")
