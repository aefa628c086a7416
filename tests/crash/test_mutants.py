"""Every planted bug has a hunt; those that are not hunted beside their campaign are hunted here."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash import mutants
from tests.crash.forkserver import ForkServer
from tests.crash.hunts import HUNTS


def test_every_planted_bug_is_hunted() -> None:
    assert set(HUNTS) == set(mutants.names())


@pytest.mark.parametrize("mutant", ["counter_stands", "chain_unchecked"])
def test_the_bug_is_caught(server: ForkServer, home: Path, mutant: str) -> None:
    assert HUNTS[mutant](server, mutant, home) != []


def test_a_lost_log_is_detected_without_them(server: ForkServer, home: Path) -> None:
    assert server.run("tests.crash.damage:lose_log", home=str(home)).result() == []


def test_a_bug_that_would_change_nothing_cannot_be_planted() -> None:
    with pytest.raises(AttributeError):
        mutants._put(mutants, "no such name", None)
