"""Kill -9 before and after every call of the store, and at random moments: nothing acknowledged is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from ninelives.store import DocumentStore, Maintenance, Store
from tests.crash.campaign import CHECK, LIVE, Campaign
from tests.crash.forkserver import ForkServer
from tests.crash.ledger import Fact, Ledger, read
from tests.crash.stores import DURABLE, SERVED

SEED = 20_26
SOME = 27
"""Every so manieth point: all of them are for `python -m tests.crash --store`."""


def test_a_kill_before_or_after_any_store_call_loses_nothing(server: ForkServer) -> None:
    tally = Campaign(server, SEED).at_every_call()
    assert tally.violations == []
    assert tally.kills == tally.points > 150


@pytest.mark.parametrize("store", SERVED)
def test_a_kill_before_or_after_a_call_of_a_served_store_loses_nothing(
    server: ForkServer, store: str
) -> None:
    tally = Campaign(server, SEED, store=store).at_every_call(every=SOME)
    assert tally.violations == []
    assert tally.kills == tally.points > 8


def test_every_method_of_the_protocols_is_a_kill_point(server: ForkServer) -> None:
    calls, _ = Campaign(server, SEED).undisturbed()
    methods = {
        name
        for protocol in (Store, DocumentStore, Maintenance)
        for name, value in vars(protocol).items()
        if callable(value) and not name.startswith("_")
    }
    assert methods - set(calls) == set()


@pytest.mark.parametrize("mode", ["inline", "posted"])
@pytest.mark.parametrize("in_memory", [True, False], ids=["memory", "disk"])
def test_kills_at_random_moments_and_in_recovery_lose_nothing(
    server: ForkServer, mode: str, in_memory: bool
) -> None:
    tally = Campaign(server, SEED, mode=mode, in_memory=in_memory).at_random(40)
    assert tally.violations == []
    assert tally.kills >= 40


@pytest.mark.parametrize("store", SERVED)
def test_kills_at_random_moments_of_a_served_store_lose_nothing(server: ForkServer, store: str) -> None:
    tally = Campaign(server, SEED, mode="posted", store=store).at_random(8)
    assert tally.violations == []
    assert tally.kills >= 8


def test_both_modes_and_all_stores_come_to_one_outcome(server: ForkServer) -> None:
    outcomes = {
        Campaign(server, SEED, mode=mode, store=store).undisturbed()[1]
        for mode in ("inline", "posted")
        for store in DURABLE
    }
    assert len(outcomes) == 1


def test_a_torn_line_says_nothing_and_spoils_no_other(home: Path) -> None:
    path = home / "ledger"
    Ledger(path).write(Fact.CREATED, "a")
    with path.open("ab") as file:
        file.write(b'{"fact":"created","run":"b')
    Ledger(path).write(Fact.CREATED, "c")
    assert [entry.run for entry in read(path)] == ["a", "c"]


def test_a_hung_child_is_killed_and_reported(server: ForkServer, home: Path) -> None:
    death = server.run("tests.crash.processes:read_byte", fd=0, timeout_seconds=60, deadline_seconds=0.2)
    assert death.hung or death.code != 0
    with pytest.raises(AssertionError):
        death.result()


def test_a_ledger_that_claims_too_much_is_believed_and_the_store_blamed(
    server: ForkServer, home: Path
) -> None:
    server.run(LIVE, home=str(home), seed=SEED, runs=1).result()
    assert server.run(CHECK, home=str(home)).result() == []
    ledger = Ledger(home / "ledger")
    ledger.write(Fact.CREATED, "never")
    ledger.write(Fact.APPENDED, "run-0", seq=10_000, check="00")
    ledger.write(Fact.EFFECT, "run-0", "00-think", key="pay:shared")
    assert len(server.run(CHECK, home=str(home)).result()) >= 3


def test_acknowledging_before_the_commit_turns_the_kills_red(server: ForkServer) -> None:
    assert Campaign(server, SEED, mode="posted", mutant="ack_first").at_every_call(every=8).violations != []
