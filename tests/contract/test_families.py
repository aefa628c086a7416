"""Parents and children: who is cancelled with whom; runs that are born with records."""

from __future__ import annotations

import pytest

from ninelives.core.errors import IdConflict, RunFinished, UsageError
from ninelives.core.model.commit import End, Park
from ninelives.core.model.run import Control, Kind, Record, State
from tests.contract.benches import Bench
from tests.contract.makers import new_run


@pytest.mark.parametrize("state", [State.FAILED, State.CANCELLED])
def test_the_children_of_a_run_that_fails_or_is_cancelled_are_cancelled(bench: Bench, state: State) -> None:
    parent = bench.running("parent")
    bench.write(bench.running("parked", parent="parent"), b"x", change=Park(None, "news", 0))
    bench.running("busy", parent="parent")
    bench.write(bench.running("done", parent="parent"), change=End(State.COMPLETED))
    bench.create("pending", parent="parent")
    bench.create("stranger")
    bench.write(parent, change=End(state))  # type: ignore[arg-type]
    rows = {name: bench.row(name) for name in ("parked", "busy", "done", "pending", "stranger")}
    assert {name: (row.state.value, row.cancelling) for name, row in rows.items()} == {
        "parked": ("checkpointed", True),
        "busy": ("running", True),
        "done": ("completed", False),
        "pending": ("cancelled", True),
        "stranger": ("pending", False),
    }
    assert rows["parked"].due_ms == bench.clock.now_ms()


def test_the_children_of_a_run_that_completes_go_on(bench: Bench) -> None:
    parent = bench.running("parent")
    bench.create("child", parent="parent")
    bench.write(parent, change=End(State.COMPLETED))
    assert (bench.row("child").state, bench.row("child").cancelling) == (State.PENDING, False)


def test_grandchildren_are_cancelled_when_their_parent_is(bench: Bench) -> None:
    parent, child = bench.running("parent"), bench.running("child", parent="parent")
    bench.create("grandchild", parent="child")
    bench.write(parent, change=End(State.FAILED))
    assert bench.row("grandchild").state is State.PENDING
    bench.write(child, change=End(State.CANCELLED))
    assert bench.row("grandchild").state is State.CANCELLED


def test_runs_that_are_each_others_parents_end(bench: Bench) -> None:
    one = bench.running("one", parent="two")
    bench.create("two", parent="one")
    bench.write(one, change=End(State.FAILED))
    assert bench.row("two").state is State.CANCELLED


@pytest.mark.parametrize("state", [State.COMPLETED, State.FAILED, State.CANCELLED])
def test_a_run_that_has_ended_has_no_new_children(bench: Bench, state: State) -> None:
    parent = bench.running("parent")
    bench.create("before", parent="parent")
    bench.write(parent, change=End(state))  # type: ignore[arg-type]
    before = bench.snapshot()
    known, late = bench.store.create_runs([new_run("before", parent="parent"), new_run("x", parent="parent")])
    assert isinstance(late, RunFinished)
    assert not isinstance(known, UsageError)
    assert bench.snapshot() == before


def prefix(*kinds: Kind) -> tuple[Record, ...]:
    return tuple(Record(7, kind, f"step#{n}", n, b"%d" % n, (), b"stale") for n, kind in enumerate(kinds))


def test_a_run_is_born_with_its_prefix_on_a_chain_of_its_own(bench: Bench) -> None:
    row = bench.create("fork", prefix=prefix(Kind.RESULT, Kind.LOG, Kind.FORKED))
    journal = bench.reopen().load_journal("fork")
    kinds = [record.kind for record in journal.records]
    assert kinds == [Kind.CREATED, Kind.RESULT, Kind.LOG, Kind.FORKED]
    assert [record.seq for record in journal.records] == [0, 1, 2, 3]
    assert [record.body for record in journal.records[1:]] == [b"0", b"1", b"2"]
    assert (row.length, row.head) == (4, journal.records[-1].check)
    bench.session(lease_ms=1_000_000)
    assert bench.write(bench.claim("fork"), b"on").length == 5
    assert bench.store.verify() == []


def test_creating_a_run_with_a_prefix_again_gives_that_run(bench: Bench) -> None:
    row = bench.create("fork", prefix=prefix(Kind.RESULT))
    assert bench.create("fork", prefix=prefix(Kind.RESULT)) == row
    (other,) = bench.store.create_runs([new_run("fork", fingerprint=b"other", prefix=prefix(Kind.LOG))])
    assert isinstance(other, IdConflict)


@pytest.mark.parametrize("kind", [Kind.CREATED, Kind.TURN, Kind.END])
def test_no_run_is_born_with_a_turn_or_an_end(bench: Bench, kind: Kind) -> None:
    (refused,) = bench.store.create_runs([new_run("fork", prefix=prefix(kind))])
    assert isinstance(refused, UsageError)
    assert bench.store.read_run("fork") is None


def test_the_blobs_of_a_prefix_must_exist_and_are_kept(bench: Bench) -> None:
    lost = (Record(1, Kind.RESULT, "step#0", 1, b"", (b"?" * 32,)),)
    (refused,) = bench.store.create_runs([new_run("fork", prefix=lost)])
    assert isinstance(refused, UsageError)
    (digest,) = bench.store.put_blobs([b"large" * 1000])
    bench.create("fork", prefix=(Record(1, Kind.RESULT, "step#0", 1, b"", (digest,)),))
    bench.clock.advance(10 * 3_600_000)
    assert bench.store.prune(ended_before_ms=0).blobs == 0


def test_a_cancelled_parent_that_nobody_claimed_takes_no_children_along_yet(bench: Bench) -> None:
    parent = bench.running("parent")
    bench.create("child", parent="parent")
    bench.store.control_run("parent", Control.CANCEL)
    assert bench.row("child").state is State.PENDING
    bench.write(parent, change=End(State.CANCELLED))
    assert bench.row("child").state is State.CANCELLED
