"""The change feed: no change of a run is ever missed, whatever happens between and during its calls."""

from __future__ import annotations

import os
from random import Random

import pytest
from msgspec.structs import replace

from ninelives.core.errors import NineLivesError, UsageError
from ninelives.core.model.commit import End
from ninelives.core.model.key import Key, KeyState, SettleKey
from ninelives.core.model.run import Control, RunQuery, RunRow, State
from tests.contract.benches import Bench
from tests.contract.makers import AnyStore, reserve
from tests.contract.operations import KEYS, Chooser

SEEDS, CALLS = 6, 150


class Reader:
    """Keeps rows up to date by the feed, and reads nothing that the feed does not name."""

    def __init__(self, store: AnyStore) -> None:
        self._store, self._cursor = store, ""
        self._stamps: dict[str, str] = {}
        self.rows: dict[str, RunRow] = {}

    def call(self, limit: int = 1000) -> bool:
        """Make one call, read the runs whose stamps are new; return whether the list was whole."""
        found = self._store.changed_runs(self._cursor, limit=limit)
        for mark in found.runs:
            if self._stamps.get(mark.id) != mark.stamp:
                self._stamps[mark.id] = mark.stamp
                row = self._store.read_run(mark.id)
                assert row is not None
                self.rows[mark.id] = row
                assert (mark.length, mark.head, mark.is_final) == (row.length, row.head, row.state.is_final)
        self._cursor = found.cursor
        return found.is_whole


def compared(row: RunRow) -> RunRow:
    """Return a row without what `prune` changes: it may go unnoticed."""
    return replace(row, base=0, base_check=b"")


@pytest.mark.parametrize("seed", range(SEEDS))
def test_no_change_is_missed(bench: Bench, seed: int) -> None:
    rng = Random(os.environ.get("NINELIVES_SEED", seed))
    chooser = Chooser(rng, bench.clock, bench.store)
    reader = Reader(bench.store)
    for _ in range(CALLS):
        bench.clock.advance(rng.choice([0, 1, 500, 20_000]))
        try:
            chooser.next().call(bench.store)
        except NineLivesError:
            continue
        if rng.random() < 0.3:  # sometimes in the middle of the list of all runs
            reader.call(limit=rng.randint(1, 3))
        if rng.random() < 0.1:
            while not reader.call(limit=rng.randint(1, 3)):
                pass
            reader.call()
            now = {run.id: compared(run) for run in bench.store.list_runs(RunQuery(limit=1000))}
            seen = {name: compared(row) for name, row in reader.rows.items()}
            assert {name: row for name, row in now.items() if seen.get(name) != row} == {}


def test_a_run_that_ends_twice_between_two_calls_is_listed(bench: Bench) -> None:
    run = bench.running("r1")
    bench.write(run, b"1", change=End(State.FAILED))
    reader = Reader(bench.store)
    while not reader.call():
        pass
    reader.call()
    bench.clock.advance(60_000)
    bench.store.control_run("r1", Control.RETRY)
    bench.write(bench.claim("r1"), b"2", change=End(State.FAILED))
    reader.call()
    assert reader.rows["r1"] == bench.row("r1")


def test_an_idle_store_lists_only_what_it_must(bench: Bench) -> None:
    for name in ("r1", "r2"):
        bench.create(name)
    reader = Reader(bench.store)
    while not reader.call(limit=1):
        pass
    reader.call()
    before = dict(reader.rows)
    reader.rows.clear()
    reader.call()
    assert before.keys() == {"r1", "r2"}
    assert reader.rows == {}


def test_a_store_has_an_id_of_its_own(bench: Bench) -> None:
    again = bench.reopen()
    assert bench.store.changed_runs().store == again.changed_runs().store != ""


def test_a_foreign_cursor_is_refused(bench: Bench) -> None:
    with pytest.raises(UsageError, match="cursor"):
        bench.store.changed_runs("[]no cursor")


def test_all_keys_are_listed_in_parts(bench: Bench) -> None:
    run = bench.running("r1")
    for name in KEYS:
        run = bench.write(run, b"1", keys=(reserve(name),))
        run = bench.write(run, b"2", keys=(SettleKey(name, b"{}"),))
    found: dict[str, Key] = {}
    cursor = ""
    while True:
        page = bench.store.list_keys(cursor, limit=1)
        found |= {key.key: key for key in page.keys}
        cursor = page.cursor
        if not cursor:
            break
    assert found == bench.store.read_keys(KEYS)
    assert {key.state for key in found.values()} == {KeyState.SETTLED}
