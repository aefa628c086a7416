"""A copy has everything: each run as it was, settled keys, documents; from and into every store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any, cast

import pytest
from msgspec.structs import replace

from ninelives.core.errors import NineLivesError, StoreUnavailable, UsageError
from ninelives.core.model.capsule import Capsule
from ninelives.core.model.commit import End, Outcome
from ninelives.core.model.inbox import ItemKind
from ninelives.core.model.key import KeyState, SettleKey
from ninelives.core.model.run import Control, Kind, RunQuery, State
from ninelives.ops.replication.bucket import Bucket
from ninelives.ops.replication.folding import choose, fold
from ninelives.ops.replication.replicator import Options, Replicator
from ninelives.ops.replication.restoring import differences, restore
from ninelives.stores.open import open_store
from tests.clocks import SteppingClock
from tests.contract.benches import STORES, Bench, make_bench
from tests.contract.makers import AnyStore, append, new_run, reserve
from tests.contract.operations import Chooser
from tests.replication.conftest import copied, pause

SEEDS, CALLS = 2, 120


@pytest.fixture(params=STORES)
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    """Yield a fresh store of each kind."""
    made = make_bench(request.param, SteppingClock(), tmp_path)
    yield made
    made.close()


def compared(capsule: Capsule) -> Capsule:
    """Return a capsule of a run without what `prune` removes of an ended one."""
    if not capsule.run.state.is_final:
        return capsule
    bare = replace(capsule.run, base=0, base_check=b"")
    keys = tuple(replace(key, state=KeyState.SETTLED, body=b"", blobs=()) for key in capsule.keys)
    return Capsule(run=bare, records=(), keys=keys)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_copy_follows_its_store_whatever_happens(bench: Bench, directory: Bucket, seed: int) -> None:
    rng, store = Random(seed), bench.store
    chooser = Chooser(rng, bench.clock, store)
    replicator: Replicator | None = None
    for _ in range(CALLS):
        bench.clock.advance(rng.choice([1, 500, 20_000]))
        try:
            chooser.next().call(store)
        except NineLivesError:
            continue
        if rng.random() < 0.1 or replicator is None:
            # Killed, and another one begins: it knows only what the bucket says.
            bench.clock.advance(40_000)
            options = Options(snapshot_ms=rng.choice([60_000, 3_600_000]))
            replicator = Replicator(store, directory, options, pause, tries=3)
            try:
                replicator.open()
            except UsageError:  # an unfinished run was forgotten: only this chooser does that so soon
                return
        if rng.random() < 0.4:
            replicator.copy()
    assert replicator is not None
    while not replicator.is_complete or replicator.copy():
        replicator.copy()
    capsules, loose = fold(directory, choose(directory, None)).whole()
    found = {one.run.id: one for one in capsules}
    for run in store.list_runs(RunQuery(limit=1000)):
        assert compared(found[run.id]) == compared(store.export_run(run.id))
    known = {key.key: key for one in capsules for key in one.keys} | {key.key: key for key in loose}
    used = {key.key for key in store.list_keys().keys if key.state is not KeyState.FREE}
    assert used <= {name for name, key in known.items() if key.state is not KeyState.FREE}


def test_an_end_before_the_stated_moment_must_be_in_the_copy(
    bench: Bench, directory: Bucket, tmp_path: Path
) -> None:
    bench.store.create_runs([new_run("ended"), new_run("later")])
    copied(bench.store, directory)
    bench.store.control_run("ended", Control.CANCEL)
    bench.clock.advance(60_000)
    stated_ms = bench.store.now_ms()
    bench.clock.advance(1)
    bench.store.control_run("later", Control.CANCEL)
    drill = open_store(f"sqlite:///{tmp_path}/drill.db")
    restore(directory, drill)
    found = differences(drill, fold(directory, choose(directory, None)), bench.store, stated_ms)
    assert found == ["ended: it ended (cancelled) before the copy was complete; in the copy it is pending"]
    drill.close()


def test_settled_keys_stay_known_when_their_run_is_forgotten(
    bench: Bench, directory: Bucket, tmp_path: Path
) -> None:
    run = bench.running("payer")
    run = bench.write(run, b"1", keys=(reserve("refund:1"),))
    run = bench.write(run, b"2", keys=(SettleKey("refund:1", b'"paid"'),))
    bench.write(run, b"3", change=End(State.COMPLETED))
    bench.clock.advance(10_000)
    now_ms = bench.clock.now_ms()
    assert bench.store.prune(ended_before_ms=now_ms, forget_before_ms=now_ms).runs == 1
    copied(bench.store, directory)
    other = make_bench("sqlite", SteppingClock(now_ms), tmp_path / "other")
    restore(directory, other.store)
    again = other.running("again")
    (verdict,) = other.store.commit([append(again, b"1", keys=(reserve("refund:1"),))])
    assert verdict.outcome is Outcome.REFUSED
    assert "was used before" in str(verdict.error)
    other.close()


@pytest.mark.parametrize("kind", STORES)
def test_a_copy_is_restored_into_every_store(kind: str, directory: Bucket, tmp_path: Path) -> None:
    source = make_bench("sqlite", SteppingClock(), tmp_path / "source")
    run = source.running("open")
    digests = source.store.put_blobs([b"large" * 50_000])
    run = source.write(run, b"1", keys=(reserve("k"),))
    assert digests
    done = source.running("done")
    done = source.write(done, b"1", keys=(reserve("settled"),))
    source.write(
        source.write(done, b"2", keys=(SettleKey("settled", b'"x"'),)), b"3", change=End(State.COMPLETED)
    )
    source.create("waiting")
    source.store.write_document("budget/day", b'{"left": 5}', version=0)
    copied(source.store, directory)
    target = make_bench(kind, SteppingClock(), tmp_path / "target")
    said = restore(directory, target.store)
    assert (said.runs, sorted(said.paused)) == (3, ["open", "waiting"])
    assert target.row("done").head == source.row("done").head
    assert target.store.load_journal("done").records == source.store.load_journal("done").records
    assert target.row("open").paused
    assert target.store.read_keys(["settled"])["settled"].body == b'"x"'
    assert target.store.read_documents("budget/")[0].body == b'{"left": 5}'
    assert [one for one in target.store.verify() if not one.duplicate] == []  # `makers.append` repeats a step
    # The same once more: a restore that was killed is continued, and says what is so now.
    target.store.control_run("waiting", Control.RESUME)
    again = restore(directory, target.store)
    assert (said.before, again.before, again.runs, again.paused) == (0, 3, 3, ("open",))
    assert not target.row("waiting").paused
    target.create("own")
    source.close()
    target.close()


def test_a_store_that_is_used_is_not_restored_into(directory: Bucket, tmp_path: Path) -> None:
    source = make_bench("sqlite", SteppingClock(), tmp_path / "source")
    source.create("r1")
    copied(source.store, directory)
    with pytest.raises(UsageError, match="not empty"):
        restore(directory, source.store)
    source.close()


def test_what_was_started_and_not_settled_is_put_before_a_person(directory: Bucket, tmp_path: Path) -> None:
    import ninelives as nl

    store = f"sqlite:///{tmp_path}/live.db"
    started = tmp_path / "started"

    @nl.action(resumable=False)
    async def pay(amount: int) -> int:
        started.touch()
        from ninelives.stores.open import open_store

        live = open_store(store)
        copied(live, directory)  # the machine is lost while the money is on its way
        live.close()
        return amount

    @nl.agent
    async def payer() -> int:
        return await pay(5)

    assert nl.run(payer, id="p1", store=store) == 5
    bench = make_bench("sqlite", SteppingClock(), tmp_path / "other")
    said = restore(directory, bench.store)
    assert [run for run, _ in said.doubts] == ["p1"]
    assert restore(directory, bench.store).doubts == said.doubts
    (item,) = bench.store.list_inbox()
    assert item.kind is ItemKind.DOUBT
    assert bench.row("p1").paused
    bench.close()


def test_a_time_in_the_past_is_restored(directory: Bucket, tmp_path: Path) -> None:
    clock = SteppingClock()
    source = make_bench("sqlite", clock, tmp_path / "source")
    source.create("early")
    copied(source.store, directory)
    clock.advance(5_000)
    at_ms = clock.now_ms()
    clock.advance(5_000)
    source.store.create_runs([new_run("late")])
    copied(source.store, directory)
    for moment, runs in ((at_ms, {"early"}), (None, {"early", "late"})):
        assert set(fold(directory, choose(directory, moment)).capsules) == runs
    with pytest.raises(UsageError, match="by that time"):
        choose(directory, at_ms - 60_000)
    source.close()


def test_what_changed_while_nothing_was_copied_is_in_the_first_copy_after_it(
    bench: Bench, directory: Bucket
) -> None:
    run, _ = bench.running("ends"), bench.create("waits", agent="other")
    bench.clock.advance(1_000)
    copied(bench.store, directory)
    bench.clock.advance(1_000)
    bench.write(run, b"done", kind=Kind.END, change=End(State.COMPLETED))
    bench.store.control_run("waits", Control.PAUSE)
    bench.create("new", agent="other")
    bench.clock.advance(60_000)
    replicator = Replicator(bench.store, directory, Options(), pause, tries=3)
    replicator.open()
    bench.clock.advance(5_000)
    replicator.copy()
    chosen = choose(directory, None)
    assert chosen.complete_ms == bench.clock.now_ms()  # so it says
    capsules, _ = fold(directory, chosen).whole()
    for name in ("ends", "waits", "new"):
        assert [one for one in capsules if one.run.id == name] == [bench.store.export_run(name)]


class Failing:
    """A store that fails when runs are read, at some of the calls."""

    def __init__(self, under: AnyStore, at: set[int]) -> None:
        self._under, self._at, self.calls = under, at, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._under, name)

    def export_run(self, run: str) -> Capsule:
        self.calls += 1
        if self.calls in self._at:
            raise StoreUnavailable("it is away for a moment")
        return self._under.export_run(run)


@pytest.mark.parametrize("is_known", [False, True], ids=["snapshot", "pass"])
def test_what_was_listed_when_the_store_failed_is_copied_by_the_next_pass(
    bench: Bench, directory: Bucket, *, is_known: bool
) -> None:
    names = [f"r{number}" for number in range(6)]
    runs = [bench.running(name) for name in names]
    bench.clock.advance(1_000)
    if is_known:
        copied(bench.store, directory)
    failing = Failing(bench.store, at=set())
    replicator = Replicator(cast(AnyStore, failing), directory, Options(), pause, tries=3)
    replicator.open()
    for run in runs:
        bench.write(run, b"done", kind=Kind.END, change=End(State.COMPLETED))
    bench.clock.advance(60_000)
    failing._at |= {failing.calls + 2, failing.calls + 5}
    replicator.run(is_once=True)
    assert failing.calls > 5
    chosen = choose(directory, None)
    assert chosen.complete_ms == bench.clock.now_ms()
    capsules, _ = fold(directory, chosen).whole()
    assert [one for one in capsules if not one.run.state.is_final] == []
    assert {one.run.id for one in capsules} == set(names)


def test_what_a_failed_pass_had_read_is_read_again_if_it_has_changed_since(
    bench: Bench, directory: Bucket
) -> None:
    runs = [bench.running(name) for name in ("r0", "r1")]
    copied(bench.store, directory)
    failing = Failing(bench.store, at=set())
    replicator = Replicator(cast(AnyStore, failing), directory, Options(), pause, tries=3)
    replicator.open()
    runs = [bench.write(run, b"step") for run in runs]
    failing._at = {failing.calls + 2}
    with pytest.raises(StoreUnavailable):
        replicator.copy()
    for run in runs:
        bench.write(run, b"done", kind=Kind.END, change=End(State.COMPLETED))
    replicator.copy()
    capsules, _ = fold(directory, choose(directory, None)).whole()
    assert {one.run.id for one in capsules if one.run.state.is_final} == {"r0", "r1"}


def test_a_snapshot_that_was_interrupted_lacks_no_run(bench: Bench, directory: Bucket) -> None:
    runs = {f"r{number}" for number in range(3)}
    bench.store.create_runs([new_run(run) for run in runs])
    copied(bench.store, directory)
    bench.clock.advance(60_000)
    options = Options(snapshot_ms=50_000, keep_ms=0)
    failing = Failing(bench.store, at={2})
    replicator = Replicator(cast(AnyStore, failing), directory, options, pause, tries=3)
    replicator.open()
    replicator.run(is_once=True)
    assert failing.calls > 2
    capsules, _ = fold(directory, choose(directory, None)).whole()
    assert {one.run.id for one in capsules} == runs


def test_a_restore_once_more_leaves_documents_that_changed_however_many_there_are(
    directory: Bucket, tmp_path: Path
) -> None:
    source = make_bench("memory", SteppingClock(), tmp_path / "source")
    for number in range(1_001):  # more than a page of them
        source.store.write_document(f"a/{number:04}", b"1", version=0)
    copied(source.store, directory)
    target = make_bench("memory", SteppingClock(), tmp_path / "target")
    restore(directory, target.store)
    target.store.write_document("a/1000", b"2", version=1)
    restore(directory, target.store)
    assert [one.body for one in target.store.read_documents("a/1000")] == [b"2"]
    source.close()
    target.close()
