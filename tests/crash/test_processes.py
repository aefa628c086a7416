"""Many processes and forks on one file: fair, awake, and each with its own store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.crash.forkserver import ForkServer
from tests.crash.stores import SEEING, scratch
from tests.crash.writers import Shares, Wakes

FAIR_ENOUGH = 0.6


def compete(server: ForkServer, home: Path, **args: Any) -> Shares:
    told = server.run("tests.crash.writers:compete", home=str(home), seconds=2.5, **args).result()
    return msgspec.convert(told, Shares)


def wake(server: ForkServer, home: Path, **args: Any) -> Wakes:
    return msgspec.convert(server.run("tests.crash.writers:wake", home=str(home), **args).result(), Wakes)


def test_four_writers_get_fair_shares(server: ForkServer, disk_home: Path) -> None:
    shares = compete(server, disk_home)
    assert shares.violations == []
    assert shares.smallest >= FAIR_ENOUGH, shares.commits


def test_a_writer_that_keeps_its_turn_is_noticed(server: ForkServer, disk_home: Path) -> None:
    assert compete(server, disk_home, mutant="turn_kept").smallest < FAIR_ENOUGH


def test_no_wake_up_is_lost(server: ForkServer, home: Path) -> None:
    wakes = wake(server, home, rounds=2000)
    assert wakes.timeouts == 0
    assert wakes.slept > 200, "the waiter must have slept, or nothing was tested"


def test_a_lost_wake_up_is_noticed(server: ForkServer, home: Path) -> None:
    assert wake(server, home, rounds=600, mutant="wake_dropped").timeouts > 0


def test_a_forked_child_is_refused_and_harms_nothing(server: ForkServer, ground: Path) -> None:
    assert server.run("tests.crash.forks:misuse", home=str(ground)).result() == []


@pytest.mark.parametrize("kind", SEEING)
def test_a_child_that_outlives_its_parent_does_not_keep_the_session(server: ForkServer, kind: str) -> None:
    with scratch(kind) as home:
        assert server.run("tests.crash.forks:orphan", home=str(home)).result() == []
    with scratch(kind) as home:
        assert server.run("tests.crash.forks:orphan", home=str(home), mutant="locks_inherited").result() != []


DUELS = [
    ("zombie", {}, "epoch_dropped"),
    ("zombie", {"parks": True}, "epoch_dropped"),
    ("twins", {}, "head_dropped"),
    ("rivals", {}, "keys_unguarded"),
]


@pytest.mark.parametrize(("duel", "args", "mutant"), DUELS)
@pytest.mark.parametrize("planted", [False, True], ids=["sound", "planted"])
def test_duels_have_one_winner(
    server: ForkServer, ground: Path, duel: str, args: dict[str, Any], mutant: str, planted: bool
) -> None:
    server.run(
        f"tests.crash.duels:{duel}", home=str(ground), mutant=mutant if planted else "", **args
    ).result()
    violations = server.run("tests.crash.judge:check", home=str(ground)).result()
    assert bool(violations) == planted, violations
