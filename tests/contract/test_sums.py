"""What records say beside their content, what a row sums up of its journal, and runs by their labels."""

from __future__ import annotations

import os

import pytest
from msgspec.structs import replace

from ninelives.core.model.commit import End, Park
from ninelives.core.model.run import Kind, RunQuery, State, StepKind
from ninelives.core.model.totals import Tally, tally_of
from tests.contract.benches import Bench
from tests.contract.makers import append, damage_in

SUMS = Tally(3, 120, 30, '{"step":1,"of":2,"note":"ä"}', "Transient: slow", '{"step":"ask#0"}')


@pytest.mark.parametrize("kind", [None, *StepKind])
def test_a_record_says_the_kind_of_its_step_and_which_life_wrote_it(
    bench: Bench, kind: StepKind | None
) -> None:
    run = bench.running()
    took = None if kind is None else 7
    bench.write(run, b"one", step_kind=kind, took_ms=took)
    first, record = bench.store.load_journal("r1").records
    assert (first.step_kind, first.epoch, first.took_ms) == (None, 0, None)
    assert (record.step_kind, record.epoch, record.took_ms) == (kind, run.epoch, took)
    (loaded,) = bench.store.load_journals(["r1"])
    assert loaded == bench.store.load_journal("r1")


def test_many_records_in_one_commit_each_say_their_own(bench: Bench) -> None:
    run = bench.running()
    (one, two) = append(run, b"1", b"2", step_kind=StepKind.READ, took_ms=0).records
    made = replace(append(run, b"1", b"2", step_kind=StepKind.READ, took_ms=0), records=(one, two))
    bench.store.commit([made])
    assert bench.store.load_journal("r1").records[1:] == (one, two)
    assert damage_in(bench.store) == []


@pytest.mark.parametrize("change", [None, End(State.COMPLETED), End(State.FAILED), Park(None, "a signal", 0)])
def test_a_commit_sets_what_the_row_sums_up(bench: Bench, change: End | Park | None) -> None:
    run = bench.running()
    after = bench.write(run, b"one", tally=SUMS, change=change)
    assert tally_of(after) == SUMS
    assert [tally_of(row) for row in bench.store.list_runs(RunQuery())] == [SUMS]
    assert tally_of(bench.store.load_journal("r1").run) == SUMS


def test_a_commit_without_sums_leaves_them_as_they_are(bench: Bench) -> None:
    run = bench.running()
    after = bench.write(run, b"one", tally=SUMS)
    assert tally_of(bench.write(after, b"two")) == SUMS
    assert tally_of(bench.write(bench.row("r1"), b"three", change=Park(1, "a timer", 0))) == SUMS


def test_a_commit_that_only_counts_sets_the_number_of_steps(bench: Bench) -> None:
    run = bench.running()
    made = append(run, b"one", tally=Tally(1))
    bench.store.commit([made])
    assert tally_of(bench.row("r1")) == Tally(1)


def test_sums_of_many_runs_in_one_batch_are_each_ones_own(bench: Bench) -> None:
    first, second = bench.running("a"), bench.running("b")
    one, other = append(first, b"1", tally=SUMS), append(second, b"1", b"2", tally=Tally(2))
    bench.store.commit([one, other])
    assert (tally_of(bench.row("a")), tally_of(bench.row("b"))) == (SUMS, Tally(2))


@pytest.mark.parametrize("size", [1, 599, 700, 1000, 1024, 1300, 2000, 2048, 3000, 4000, 4096, 60_000])
def test_bodies_of_any_size_come_back_as_they_were(bench: Bench, size: int) -> None:
    run = bench.running()
    bodies = [os.urandom(size) for _ in range(12)]
    for body in bodies:
        run = bench.write(run, body)
    records = bench.store.load_journal("r1").records[1:]
    assert [record.body for record in records] == bodies
    assert bench.store.stats().records == 13
    assert damage_in(bench.store) == []
    bench.write(run, b"over", change=End(State.COMPLETED))
    pruned = bench.store.prune(ended_before_ms=bench.clock.now_ms() + 1)
    assert (pruned.records, bench.store.stats().records, bench.store.stats().record_bytes) == (14, 0, 0)


def test_runs_are_found_by_their_labels_newest_first(bench: Bench) -> None:
    for number in range(6):
        labels = {"team": "x" if number % 2 else "y", "tier": str(number % 3)}
        bench.create(f"r{number}", labels=labels)
    bench.create("plain")

    def found(**query: object) -> list[str]:
        return [run.id for run in bench.store.list_runs(RunQuery(**query))]  # type: ignore[arg-type]

    assert found(labels={"team": "x"}) == ["r5", "r3", "r1"]
    assert found(labels={"team": "x", "tier": "0"}) == ["r3"]
    assert found(labels={"team": "x"}, limit=2) == ["r5", "r3"]
    assert found(labels={"team": "x"}, after=bench.row("r5").number) == ["r3", "r1"]
    assert found(labels={"team": "x"}, states=(State.RUNNING,)) == []
    assert found(labels={"team": "z"}) == found(labels={"x": "team"}) == []
    assert found(labels={"team": "y"}, agent="nobody") == []


def test_a_forgotten_run_is_not_found_by_its_label(bench: Bench) -> None:
    run = bench.running("gone", labels={"team": "x"})
    bench.write(run, b"", change=End(State.COMPLETED), kind=Kind.END)
    bench.create("stays", labels={"team": "x"})
    later = bench.clock.now_ms() + 1
    assert bench.store.prune(ended_before_ms=later, forget_before_ms=later).runs == 1
    assert [one.id for one in bench.store.list_runs(RunQuery(labels={"team": "x"}))] == ["stays"]
    assert damage_in(bench.store) == []
