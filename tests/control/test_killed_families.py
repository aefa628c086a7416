"""Parents, undoings, retries and forks, killed before and after every call of the store.

Windows: born and not recorded, ended and not recorded (`children`), undone or not begun (`ending`), the end
still the last record (`executor`), the fork made or not.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ninelives.core.model.run import RunQuery, RunRow, State
from ninelives.stores.sqlite import SqliteStore
from tests.control.families import CHILDREN, FamilyServer
from tests.crash.forkserver import ForkServer
from tests.crash.killing import Side
from tests.crash.stores import scratch

WORK, RETRY, FORK = (f"tests.control.families:{name}" for name in ("work", "retry", "fork"))
SIDES: tuple[Side, Side] = ("before", "after")
MOST_CALLS = 200
STRIDE = 2
"""Every so manieth call is killed at, on the other side each time."""


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    """Yield a fork server."""
    with FamilyServer() as running:
        yield running


def rows(home: Path) -> dict[str, RunRow]:
    store = SqliteStore(home / "runs.db")
    try:
        assert store.verify() == []
        return {run.id: run for run in store.list_runs(RunQuery(limit=1000))}
    finally:
        store.close()


def ledger(home: Path) -> list[str]:
    path = home / "ledger"
    return path.read_text().splitlines() if path.exists() else []


def to_the_end(server: ForkServer, home: Path, **args: Any) -> RunRow:
    for _ in range(20):
        server.run(WORK, home=str(home), **args).result()
        found = rows(home)
        if all(run.state.is_final for run in found.values()):
            return found["r"]
    raise AssertionError(rows(home))


def kill_points() -> Iterator[tuple[int, Side]]:
    for number, call in enumerate(range(1, MOST_CALLS, STRIDE)):
        yield call, SIDES[number % 2]


def test_children_are_born_once_and_their_results_come_once(server: ForkServer) -> None:
    for call, side in kill_points():
        with scratch() as home:
            killed = server.run(WORK, home=str(home), agent="parent", call=call, side=side).was_killed
            row = to_the_end(server, home, agent="parent")
            found = rows(home)
            assert row.state is State.COMPLETED, f"call {call} {side}"
            assert sorted(found) == ["r", *(run for run in sorted(found) if found[run].parent == "r")]
            assert len(found) == CHILDREN + 1, f"call {call} {side}: {sorted(found)}"
            done = ledger(home)
            assert sorted(set(done)) == [f"child {number}" for number in range(CHILDREN)]
            assert len(done) <= CHILDREN * (1 + killed)
        if not killed:
            return
    raise AssertionError("a life has more calls than this test kills at")


def test_undoing_goes_on_after_any_kill_and_skips_nothing(server: ForkServer) -> None:
    for call, side in kill_points():
        with scratch() as home:
            killed = server.run(WORK, home=str(home), agent="trip", call=call, side=side).was_killed
            assert to_the_end(server, home, agent="trip").state is State.FAILED
            done = ledger(home)
            assert list(dict.fromkeys(done)) == ["a", "b", "break", "undo b", "undo a"], f"call {call} {side}"
            assert len(done) <= 5 + killed
        if not killed:
            return
    raise AssertionError("a life has more calls than this test kills at")


def test_a_retry_killed_anywhere_goes_on_from_the_failed_step(server: ForkServer) -> None:
    for call, side in kill_points():
        with scratch() as home:
            server.run(WORK, home=str(home), agent="fragile").result()
            asked = server.run(RETRY, home=str(home), call=call, side=side).was_killed
            server.run(RETRY, home=str(home)).result()
            args: dict[str, Any] = {"home": str(home), "agent": "fragile", "mended": True}
            killed = server.run(WORK, **args, call=call, side=side).was_killed
            assert to_the_end(server, home, agent="fragile", mended=True).state is State.COMPLETED
            done = ledger(home)
            assert list(dict.fromkeys(done)) == ["before", "break", "after"], f"call {call} {side}"
            assert done.count("before") == 1
            assert len(done) <= 4 + killed
        if not (killed or asked):
            return
    raise AssertionError("a life has more calls than this test kills at")


def test_a_fork_killed_anywhere_is_made_once(server: ForkServer) -> None:
    with scratch() as home:
        server.run(WORK, home=str(home), agent="fragile", mended=True).result()
        for call in range(1, 30):
            if not server.run(FORK, home=str(home), call=call, side=SIDES[call % 2]).was_killed:
                break
        else:
            raise AssertionError("a fork has more calls than this test kills at")
        to_the_end(server, home, agent="fragile", mended=True)
        found = rows(home)
        assert {run: row.state for run, row in found.items()} == {
            "r": State.COMPLETED,
            "fork": State.COMPLETED,
        }
        assert ledger(home) == ["before", "break", "after", "after"]
