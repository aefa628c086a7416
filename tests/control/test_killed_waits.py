"""A run that waits, and who talks to it, killed before and after every call of the store.

Windows: the park (`# CRASH: not parked`), the take (`# CRASH: taken or not taken`), the waking
(`# CRASH: awake and not recorded`), the sending and the cancelling.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ninelives.backends.sqlite import SqliteStore
from ninelives.core.model import Run, State
from tests.control.lives import CANCEL, LETTERS, SEND, WORK, ControlServer
from tests.crash.forkserver import ForkServer
from tests.crash.killing import Side
from tests.crash.stores import scratch

LONGEST_SECONDS = 60.0
SIDES: tuple[Side, Side] = ("before", "after")


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    """Yield a fork server."""
    with ControlServer() as running:
        yield running


def row(home: Path) -> Run:
    store = SqliteStore(home / "runs.db")
    try:
        found = store.read_run("r")
        assert found is not None
        assert store.verify() == []
        return found
    finally:
        store.close()


def work_to_the_end(server: ForkServer, home: Path) -> None:
    deadline = time.monotonic() + LONGEST_SECONDS
    while not row(home).state.is_final:
        assert time.monotonic() < deadline, row(home)
        server.run(WORK, home=str(home)).result()


def filed(home: Path) -> list[int]:
    return [int(line) for line in (home / "ledger").read_text().split()]


def taken(home: Path) -> list[str]:
    """Return the steps that took a signal, in the journal's order."""
    store = SqliteStore(home / "runs.db")
    try:
        records = store.load_journal("r", since=0).records
        return [record.step for record in records if record.kind.value == "signal"]
    finally:
        store.close()


def test_a_worker_killed_at_any_call_loses_and_doubles_no_signal(server: ForkServer) -> None:
    for call in range(1, 60):
        side = SIDES[call % 2]  # after one call is before the next
        with scratch() as home:
            server.run(WORK, home=str(home)).result()
            deaths = 0
            for letter in range(LETTERS):
                server.run(SEND, home=str(home), letter=letter).result()
                deaths += server.run(WORK, home=str(home), call=call, side=side).was_killed
            work_to_the_end(server, home)
            assert row(home).state is State.COMPLETED
            assert len(taken(home)) == LETTERS
            got = filed(home)
            assert list(dict.fromkeys(got)) == list(range(LETTERS)), f"call {call}: {got}"
            assert len(got) <= LETTERS + deaths
        if not deaths:
            return
    raise AssertionError("a life has more calls than this test kills at")


@pytest.mark.parametrize("side", SIDES)
def test_a_sender_killed_at_any_call_may_send_again(server: ForkServer, side: Side) -> None:
    with scratch() as home:
        server.run(WORK, home=str(home)).result()
        for letter in range(LETTERS):
            killed = True
            call = 0
            while killed:
                call += 1
                killed = server.run(SEND, home=str(home), letter=letter, call=call, side=side).was_killed
            assert call > 1
        work_to_the_end(server, home)
        assert (row(home).state, filed(home)) == (State.COMPLETED, list(range(LETTERS)))


def test_a_cancel_killed_at_any_call_is_asked_again_and_counts_once(server: ForkServer) -> None:
    for call in range(1, 60):
        side = SIDES[call % 2]
        with scratch() as home:
            server.run(WORK, home=str(home)).result()
            deaths = int(server.run(CANCEL, home=str(home), call=call, side=side).was_killed)
            server.run(CANCEL, home=str(home)).result()
            deaths += server.run(WORK, home=str(home), call=call, side=side).was_killed
            work_to_the_end(server, home)
            assert row(home).state is State.CANCELLED
        if not deaths:
            return
    raise AssertionError("a life has more calls than this test kills at")
