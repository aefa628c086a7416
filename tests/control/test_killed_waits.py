"""A run that waits, and who talks to it, killed before and after every call of the store.

Windows: the park (`# CRASH: not parked`), the take (`# CRASH: taken or not taken`), the waking
(`# CRASH: awake and not recorded`), the sending and the cancelling.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ninelives.core.model.run import RunRow, State
from tests.control.lives import CANCEL, LETTERS, SEND, WORK, ControlServer
from tests.crash.forkserver import ForkServer
from tests.crash.killing import Side
from tests.crash.stores import DURABLE, SERVED, bury, open_at, scratch

LONGEST_SECONDS = 60.0
SIDES: tuple[Side, Side] = ("before", "after")
STRIDES = [("sqlite", 1), *((kind, 9) for kind in SERVED)]
"""On a server, every ninth call: what differs there is the store, which has a crash suite of its own."""


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    """Yield a fork server."""
    with ControlServer() as running:
        yield running


def row(home: Path) -> RunRow:
    store = open_at(home)
    try:
        found = store.read_run("r")
        assert found is not None
        assert store.verify() == []
        return found
    finally:
        store.close()


def killed(server: ForkServer, what: str, home: Path, **how: Any) -> bool:
    """Live a life that is killed somewhere; tells whether it was. Who started it sees it end."""
    was_killed = server.run(what, home=str(home), **how).was_killed
    bury(home)
    return was_killed


def work_to_the_end(server: ForkServer, home: Path) -> None:
    deadline = time.monotonic() + LONGEST_SECONDS
    while not row(home).state.is_final:
        assert time.monotonic() < deadline, row(home)
        server.run(WORK, home=str(home)).result()


def filed(home: Path) -> list[int]:
    return [int(line) for line in (home / "ledger").read_text().split()]


def taken(home: Path) -> list[str]:
    """Return the steps that took a signal, in the journal's order."""
    store = open_at(home)
    try:
        records = store.load_journal("r", since=0).records
        return [record.step for record in records if record.kind.value == "signal"]
    finally:
        store.close()


@pytest.mark.parametrize(("kind", "stride"), STRIDES)
def test_a_worker_killed_at_any_call_loses_and_doubles_no_signal(
    server: ForkServer, kind: str, stride: int
) -> None:
    for call in range(1, 60, stride):
        side = SIDES[call % 2]  # after one call is before the next
        with scratch(kind) as home:
            server.run(WORK, home=str(home)).result()
            deaths = 0
            for letter in range(LETTERS):
                server.run(SEND, home=str(home), letter=letter).result()
                deaths += killed(server, WORK, home, call=call, side=side)
            work_to_the_end(server, home)
            assert row(home).state is State.COMPLETED
            assert len(taken(home)) == LETTERS
            got = filed(home)
            assert list(dict.fromkeys(got)) == list(range(LETTERS)), f"call {call}: {got}"
            assert len(got) <= LETTERS + deaths
        if not deaths:
            return
    raise AssertionError("a life has more calls than this test kills at")


@pytest.mark.parametrize("kind", DURABLE)
@pytest.mark.parametrize("side", SIDES)
def test_a_sender_killed_at_any_call_may_send_again(server: ForkServer, side: Side, kind: str) -> None:
    with scratch(kind) as home:
        server.run(WORK, home=str(home)).result()
        for letter in range(LETTERS):
            call = 1
            while killed(server, SEND, home, letter=letter, call=call, side=side):
                call += 1
            assert call > 1
        work_to_the_end(server, home)
        assert (row(home).state, filed(home)) == (State.COMPLETED, list(range(LETTERS)))


@pytest.mark.parametrize(("kind", "stride"), STRIDES)
def test_a_cancel_killed_at_any_call_is_asked_again_and_counts_once(
    server: ForkServer, kind: str, stride: int
) -> None:
    for call in range(1, 60, stride):
        side = SIDES[call % 2]
        with scratch(kind) as home:
            server.run(WORK, home=str(home)).result()
            deaths = int(killed(server, CANCEL, home, call=call, side=side))
            server.run(CANCEL, home=str(home)).result()
            deaths += killed(server, WORK, home, call=call, side=side)
            work_to_the_end(server, home)
            assert row(home).state is State.CANCELLED
        if not deaths:
            return
    raise AssertionError("a life has more calls than this test kills at")
