"""A store that is killed while it is made or migrated opens the next time, with all that it had."""

from __future__ import annotations

import pytest

from tests.crash import births, syscalls
from tests.crash.forkserver import ForkServer

pytestmark = pytest.mark.skipif(bool(syscalls.reason_not_to()), reason=f"not run: {syscalls.reason_not_to()}")


def test_a_store_killed_while_it_is_made_is_made_again(server: ForkServer) -> None:
    kills, violations = births.kill_creation(server, every=30)
    assert violations == []
    assert kills > 8


def test_a_store_killed_while_it_is_migrated_is_migrated_again(server: ForkServer) -> None:
    kills, violations = births.kill_migration(server, every=24)
    assert violations == []
    assert kills > 3


def test_a_store_killed_while_it_is_backed_up_or_restored_is_so_again(server: ForkServer) -> None:
    kills, violations = births.kill_restore(server, every=60)
    assert violations == []
    assert kills > 10


@pytest.mark.parametrize(
    ("mutant", "campaign"),
    [("made_in_place", births.kill_creation), ("migrated_in_pieces", births.kill_migration)],
)
def test_planted_bugs_of_making_and_migrating_turn_it_red(
    server: ForkServer, mutant: str, campaign: births.Campaign
) -> None:
    _, violations = campaign(server, every=40, only="pwrite64", mutant=mutant)
    assert violations != []
