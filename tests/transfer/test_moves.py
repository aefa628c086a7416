"""Moves: a run leaves one store and goes on in another, and can never be claimed in both."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any, cast

import pytest

from ninelives.core.errors import (
    IdConflict,
    KeyConflict,
    NineLivesError,
    RunFinished,
    RunMoved,
    UnknownRun,
    UsageError,
)
from ninelives.core.model.capsule import Move
from ninelives.core.model.commit import End, Outcome
from ninelives.core.model.key import KeyState, ReleaseKey, SettleKey, WaitKey
from ninelives.core.model.run import Control, Kind, RunRow, State
from ninelives.ops.replication.opening import open_bucket
from ninelives.ops.replication.restoring import restore
from ninelives.ops.transfer import moving
from ninelives.stores.sqlite import SqliteStore
from ninelives.stores.sqlite.files import backups
from ninelives.stores.store_id import store_id
from tests.clocks import SteppingClock
from tests.contract.benches import STORES, Bench, make_bench
from tests.contract.makers import AnyStore, append, new_item, reserve
from tests.contract.test_capsules import faults
from tests.crash.killing import KillingStore, KillPoint
from tests.replication.conftest import copied

PAIRS = [(source, STORES[(at + 1) % len(STORES)]) for at, source in enumerate(STORES)]
PAIRS += [("sqlite", "sqlite"), ("redis", "postgresql")]


@pytest.fixture(params=PAIRS, ids="-".join)
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Bench, Bench]]:
    """Yield two stores."""
    clock, made = SteppingClock(), []
    for side, kind in zip(("source", "target"), request.param, strict=True):
        (tmp_path / side).mkdir()
        made.append(make_bench(kind, clock, tmp_path / side))
    yield made[0], made[1]
    for bench in made:
        bench.close()


def busy(bench: Bench, id: str = "r1", **fields: object) -> RunRow:
    """Return a run at work, with a blob, an item, a settled key and a key that it holds."""
    (digest,) = bench.store.put_blobs([b"large" * 100])
    run = bench.running(id, blobs=(digest,), **fields)
    run = bench.write(run, b"x", opens=[new_item(f"item of {id}")], keys=[reserve(f"held by {id}")])
    done = f"done by {id}"
    return bench.write(run, b"x", keys=[reserve(done), SettleKey(done, b"result")])


def test_a_run_goes_on_in_the_other_store_and_in_no_other(pair: tuple[Bench, Bench]) -> None:
    source, target = pair
    run = busy(source)
    (moved,) = moving.move(source.store, target.store, ["r1"])
    assert moved.has_arrived
    row = source.row("r1")
    assert (row.state, row.session) == (State.MOVED, None)
    assert target.store.url in row.waits
    # The old owner is fenced, and no worker gets it here any more.
    assert source.store.commit([append(run, b"y")])[0].outcome is Outcome.FENCED
    assert source.store.claim_runs("s1", 9, {"helper": 9}).runs == ()
    target.session("s2", lease_ms=1_000_000)
    there = target.claim("r1", "s2")
    target.write(
        there, b"y", keys=[SettleKey("held by r1", b"v")], kind=Kind.END, change=End(State.COMPLETED)
    )
    assert faults(source) == faults(target) == []
    assert moving.move(source.store, target.store, ["r1"]) == [moved]


def test_it_accepts_nothing_here_and_says_where_it_is(pair: tuple[Bench, Bench]) -> None:
    source, target = pair
    busy(source)
    (item,) = source.store.list_inbox()
    source.store.depart_runs(["r1"], Move(id="m", to="t", url="there"))
    for _ in range(2):
        with pytest.raises(RunMoved, match="there"):
            source.store.send_signal("r1", "go", b"")
        for control in Control:
            with pytest.raises(RunMoved, match="there"):
                source.store.control_run("r1", control)
        with pytest.raises(RunMoved, match="there"):
            source.store.depart_runs(["r1"], Move(id="m2", to="t", url="elsewhere"))
        if item.id in {one.id for one in source.store.list_inbox()}:
            with pytest.raises(RunMoved, match="there"):
                source.store.answer_item(item.id, digest=item.digest, body=b"yes", by="ada")
        source.store.settle_move("m", arrived=True)
    assert source.store.list_inbox() == []
    with pytest.raises(UsageError):
        source.store.settle_move("m", arrived=False)
    assert target.store.read_run("r1") is None


def test_settled_keys_stay_known_on_both_sides_and_held_ones_say_where_they_are(
    pair: tuple[Bench, Bench],
) -> None:
    source, target = pair
    busy(source)
    other = source.running("other")
    source.write(other, b"x", keys=[WaitKey("held by r1")])
    before = source.row("other").news
    moving.move(source.store, target.store, ["r1"])
    names = ["done by r1", "held by r1"]
    here, there = (bench.store.read_keys(names) for bench in pair)
    assert [here[name].state for name in names] == [KeyState.SETTLED, KeyState.MOVED]
    assert [there[name].state for name in names] == [KeyState.SETTLED, KeyState.RESERVED]
    # The run that waited for it gets news, asks again, and is refused with the place.
    assert source.row("other").news > before
    (verdict,) = source.store.commit([append(source.row("other"), b"y", keys=[reserve("held by r1")])])
    assert isinstance(verdict.error, KeyConflict)
    assert target.store.url in str(verdict.error)


def test_a_tree_moves_whole_or_not_at_all(pair: tuple[Bench, Bench]) -> None:
    source, target = pair
    source.running("top")
    source.running("child", parent="top")
    source.running("grandchild", parent="child")
    for name in ("child", "grandchild"):
        with pytest.raises(UsageError, match="belongs to") as caught:
            moving.move(source.store, target.store, [name])
        assert "top" in str(caught.value.remedy)
    assert source.row("child").state is State.RUNNING
    (moved,) = moving.move(source.store, target.store, ["top"])
    assert set(moved.runs) == {"top", "child", "grandchild"}
    assert all(target.row(name).state is State.CHECKPOINTED for name in moved.runs)


def test_a_run_that_the_other_store_refuses_stays(pair: tuple[Bench, Bench]) -> None:
    source, target = pair
    busy(source)
    target.write(
        target.running("other"), b"x", keys=[reserve("done by r1"), SettleKey("done by r1", b"second")]
    )
    with pytest.raises(KeyConflict, match="'other'"):
        moving.move(source.store, target.store, ["r1"])
    assert source.row("r1").state is State.CHECKPOINTED
    assert target.store.read_run("r1") is None
    target.create("r2")
    source.create("r2")
    with pytest.raises(IdConflict):
        moving.move(source.store, target.store, ["r2"])
    assert {run.id for run in source.store.claim_runs("s1", 9, {"helper": 9}).runs} == {"r1", "r2"}


def test_a_move_that_was_called_back_cannot_arrive_later(pair: tuple[Bench, Bench]) -> None:
    source, target = pair
    busy(source)
    source.store.depart_runs(["r1"], Move(id="m", to=store_id(target.store), url="there"))
    capsule = source.store.export_run("r1")
    (back,) = moving.call_back(source.store, target.store, ["r1"])
    assert not back.has_arrived
    assert source.row("r1").state is State.CHECKPOINTED
    # The process that began it was stopped all the while, and goes on now.
    with pytest.raises(UsageError, match="called back"):
        target.store.import_runs([capsule], move="m")
    assert target.store.read_run("r1") is None
    assert moving.move(source.store, target.store, ["r1"])[0].has_arrived


def test_what_has_arrived_is_not_called_back(pair: tuple[Bench, Bench]) -> None:
    source, target = pair
    source.running()
    source.store.depart_runs(["r1"], Move(id="m", to=store_id(target.store), url="there"))
    target.store.import_runs([source.store.export_run("r1")], move="m")
    (back,) = moving.call_back(source.store, target.store, ["r1"])
    assert back.has_arrived
    assert source.row("r1").state is State.MOVED


def test_what_cannot_be_moved(pair: tuple[Bench, Bench]) -> None:
    source, target = pair
    run = source.running()
    with pytest.raises(UsageError, match="same store"):
        moving.move(source.store, source.store, ["r1"])
    with pytest.raises(UnknownRun):
        moving.move(source.store, target.store, ["nobody"])
    with pytest.raises(UsageError, match="not on its way"):
        moving.call_back(source.store, target.store, ["r1"])
    source.write(run, b"x", kind=Kind.END, change=End(State.COMPLETED))
    with pytest.raises(RunFinished, match="export"):
        moving.move(source.store, target.store, ["r1"])


# Kills -------------------------------------------------------------------------------------------


def killed_at(point: KillPoint | None, which: str, home: Path) -> bool:
    """Move in a process that is killed before or after a call of one store; return whether it was killed."""
    child = os.fork()
    if child == 0:
        try:
            stores: dict[str, Any] = {
                side: SqliteStore(home / side / "test.db") for side in ("source", "target")
            }
            stores[which] = KillingStore(stores[which], point)
            moving.move(stores["source"], stores["target"], ["top"])
            os._exit(0)
        except BaseException:
            import traceback

            traceback.print_exc()
            os._exit(3)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0, status
    return os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL


@pytest.mark.parametrize("which", ["source", "target"])
@pytest.mark.parametrize("side", ["before", "after"])
def test_a_move_killed_at_any_call_leaves_no_run_that_could_run_in_both(
    which: str, side: str, tmp_path: Path
) -> None:
    for number in count(1):
        home = tmp_path / str(number)
        clock = SteppingClock()
        for name in ("source", "target"):
            (home / name).mkdir(parents=True)
        source = make_bench("sqlite", clock, home / "source")
        busy(source, "top")
        source.running("child", parent="top")
        source.close()
        was_killed = killed_at(KillPoint(number, cast("Any", side)), which, home)
        benches = [make_bench("sqlite", clock, home / name) for name in ("source", "target")]
        for run in ("top", "child"):
            rows = [bench.store.read_run(run) for bench in benches]
            able = [row for row in rows if row is not None and row.state is not State.MOVED]
            assert len(able) <= 1, (number, rows)
        for bench in benches:
            bench.close()
        if not was_killed:
            assert number > 3
            return
        assert not killed_at(None, which, home)
        ended = [make_bench("sqlite", clock, home / name) for name in ("source", "target")]
        assert [bench.row("top").state for bench in ended] == [State.MOVED, State.CHECKPOINTED]
        assert [faults(bench) for bench in ended] == [[], []]
        for bench in ended:
            bench.close()


def test_two_moves_at_once_are_one(tmp_path: Path) -> None:
    clock = SteppingClock()
    for side in ("source", "target"):
        (tmp_path / side).mkdir()
    source, target = (make_bench("sqlite", clock, tmp_path / side) for side in ("source", "target"))
    busy(source)
    (first,) = moving.move(source.store, target.store, ["r1"])
    source.store.settle_move(first.id, arrived=True)
    with pytest.raises(NineLivesError):
        source.store.settle_move(first.id, arrived=False)
    assert moving.move(source.store, target.store, ["r1"]) == [first]
    source.close()
    target.close()


@pytest.mark.parametrize("how", ["bucket", "file"])
def test_a_run_that_was_on_its_way_when_its_store_was_copied_waits_for_a_person_if_it_returns(
    how: str, tmp_path: Path
) -> None:
    clock, home = SteppingClock(), tmp_path
    for side in ("source", "target", "restored"):
        (home / side).mkdir()
    source, target = (make_bench("sqlite", clock, home / side) for side in ("source", "target"))
    source.running("r1")
    source.store.depart_runs(["r1"], Move(id="m", to=store_id(target.store), url=target.store.url))
    bucket = open_bucket(f"file://{home}/bucket")
    if how == "bucket":
        copied(source.store, bucket)
    else:
        cast(SqliteStore, source.store).backup(home / "copy.db")
    # Called back after the copy, it does the rest of its work here; then the source is lost.
    moving.call_back(source.store, target.store, ["r1"])
    source.write(source.claim("r1"), b"effect", kind=Kind.END, change=End(State.COMPLETED))
    if how == "file":
        backups.restore(home / "copy.db", home / "restored" / "store.db", clock)
        again: AnyStore = SqliteStore(home / "restored" / "store.db", clock=clock)
    else:
        again = make_bench("sqlite", clock, home / "restored").store
        restore(bucket, again)
    moving.call_back(again, target.store, ["r1"])
    row = again.read_run("r1")
    assert row is not None
    assert (row.state, row.paused) == (State.CHECKPOINTED, True)
    assert again.verify() == []
    again.close()
    source.close()
    target.close()


def test_a_restored_store_is_not_asked_for_the_one_that_a_move_leads_to(tmp_path: Path) -> None:
    clock = SteppingClock()
    for side in ("source", "target"):
        (tmp_path / side).mkdir()
    source, target = (make_bench("sqlite", clock, tmp_path / side) for side in ("source", "target"))
    source.running("r1")
    to = store_id(target.store)
    cast(SqliteStore, target.store).backup(tmp_path / "copy.db")
    source.store.depart_runs(["r1"], Move(id="m", to=to, url=target.store.url))
    # It may have arrived in the target since; of that the copy knows nothing.
    backups.restore(tmp_path / "copy.db", tmp_path / "restored.db", clock)
    restored = SqliteStore(tmp_path / "restored.db", clock=clock)
    with pytest.raises(UsageError, match="on its way to"):
        moving.call_back(source.store, restored, ["r1"])
    with pytest.raises(UsageError, match="on its way to"):
        moving.move(source.store, restored, ["r1"])
    assert source.row("r1").state is State.MOVED
    for store in (restored, source, target):
        store.close()


def test_a_key_that_has_moved_is_not_freed_by_another_run_s_copy(pair: tuple[Bench, Bench]) -> None:
    source, target = pair
    busy(source)
    moving.move(source.store, target.store, ["r1"])
    home = make_bench("memory", source.clock, Path())
    run = home.running("other")
    run = home.write(run, b"x", keys=[reserve("held by r1")])
    held = home.store.export_run("other")
    home.write(run, b"x", keys=[ReleaseKey("held by r1")])
    free = home.store.export_run("other")
    with pytest.raises(KeyConflict, match=r"'other'.*moved by run 'r1'"):
        source.store.import_runs([held])
    source.store.import_runs([free])
    assert source.store.read_keys(["held by r1"])["held by r1"].state is KeyState.MOVED
    home.close()
