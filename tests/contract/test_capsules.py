"""Capsules: a run as one store has it, taken in by any other, whole or not at all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from ninelives.core.errors import BadRecord, Corrupt, IdConflict, KeyConflict, NineLivesError, UnknownRun
from ninelives.core.journal.settlement import write_start
from ninelives.core.model.capsule import Capsule
from ninelives.core.model.commit import End, Outcome, Park
from ninelives.core.model.inbox import ItemKind
from ninelives.core.model.key import Key, KeyState, SettleKey
from ninelives.core.model.run import Kind, State
from ninelives.core.values.fingerprint import Fingerprint
from ninelives.store import Fault
from tests.clocks import SteppingClock
from tests.contract.benches import STORES, Bench, make_bench
from tests.contract.makers import append, new_item, new_run, reserve


@pytest.fixture
def target(request: pytest.FixtureRequest, bench: Bench, tmp_path: Path) -> Iterator[Bench]:
    """Yield another store: of the kind that is asked for, or of the next kind."""
    directory = tmp_path / "target"
    directory.mkdir()
    source = request.node.callspec.params["bench"]
    kind = getattr(request, "param", "") or STORES[(STORES.index(source) + 1) % len(STORES)]
    made = make_bench(kind, bench.clock, directory)
    yield made
    made.close()


def faults(bench: Bench) -> list[Fault]:
    """Return what verifying finds, but for steps that these tests record twice."""
    return [fault for fault in bench.store.verify() if not fault.duplicate]


def carried(bench: Bench, target: Bench, run: str = "r1") -> Capsule:
    """Export a run, and put its blobs into the other store."""
    capsule = bench.store.export_run(run)
    target.store.put_blobs(bench.store.get_blobs(capsule.blobs).values())
    return capsule


def busy(bench: Bench, id: str = "r1") -> None:
    """Create a run that has one of everything, and is at work."""
    (digest,) = bench.store.put_blobs([b"large" * 100])
    run = bench.running(id, blobs=(digest,), labels={"team": "x"}, parent="mother")
    for number in range(3):
        bench.store.send_signal(id, "go", b"%d" % number, id=f"s{number}" if number else None)
    run = bench.row(id)
    run = bench.write(run, b"x", kind=Kind.SIGNAL, takes=[1])
    run = bench.write(run, b"x", kind=Kind.SIGNAL, takes=[2])
    run = bench.write(run, b"x", opens=[new_item(f"item of {id}")], keys=[reserve(f"held by {id}")])
    run = bench.write(run, b"x", keys=[reserve(f"done by {id}")])
    bench.write(run, b"x", keys=[SettleKey(f"done by {id}", b"result", (digest,))], kind=Kind.TURN)


def portable(capsule: Capsule) -> Capsule:
    """Leave out what an import changes."""
    return replace(capsule, run=replace(capsule.run, epoch=0, news=0, due_ms=None, changed_ms=0))


@pytest.mark.parametrize("target", STORES, indirect=True)
def test_a_run_is_the_same_in_every_other_store_and_goes_on_there(bench: Bench, target: Bench) -> None:
    busy(bench)
    capsule = carried(bench, target)
    assert [signal.number for signal in capsule.signals] == [2, 3]
    (imported,) = target.store.import_runs([capsule], move="m")
    assert imported.is_new
    assert portable(target.store.export_run("r1")) == portable(capsule)
    assert faults(target) == []
    assert [item.id for item in target.store.list_inbox()] == ["item of r1"]
    target.session("s2", lease_ms=1_000_000)
    run = target.claim("r1", "s2")
    assert run.epoch > bench.row("r1").epoch
    run = target.write(run, b"x", kind=Kind.SIGNAL, takes=[3], keys=[SettleKey("held by r1", b"more")])
    assert target.store.send_signal("r1", "go", b"1", id="s1").taken is not None
    assert target.store.send_signal("r1", "go", b"new").number == 4
    target.write(target.row("r1"), b"end", kind=Kind.END, change=End(State.COMPLETED))
    assert faults(target) == []


def test_importing_again_changes_nothing_wherever_the_run_is_by_now(bench: Bench, target: Bench) -> None:
    busy(bench)
    capsule = carried(bench, target)
    target.store.import_runs([capsule], move="m")
    target.session("s2", lease_ms=1_000_000)
    run = target.claim("r1", "s2")
    for length in (0, 1):
        before = target.snapshot(("held by r1", "done by r1"))
        (imported,) = target.store.import_runs([capsule])
        assert not imported.is_new
        assert target.snapshot(("held by r1", "done by r1")) == before
        if not length:
            target.write(run, b"x", b"y")


def test_an_unfinished_copy_is_paused_and_its_open_start_waits_for_a_person(
    bench: Bench, target: Bench
) -> None:
    run = bench.running()
    start = write_start(Fingerprint(b"f", b"{}"), w="s1", k="k")
    run = bench.write(run, start, kind=Kind.INTENT, keys=[reserve("k", resumable=False)])
    capsule = carried(bench, target)
    (imported,) = target.store.import_runs([capsule])
    assert imported.run.paused
    assert len(imported.doubts) == 1
    (item,) = target.store.list_inbox()
    assert (item.kind, item.run) == (ItemKind.DOUBT, "r1")
    assert target.store.read_keys(["k"])["k"].state is KeyState.IN_DOUBT
    assert faults(target) == []
    target.session("s2", lease_ms=1_000_000)
    assert target.store.claim_runs("s2", 9, {"helper": 9}).runs == ()
    # The original goes on as if nothing had happened.
    bench.write(run, b"x", keys=[SettleKey("k", b"done")])
    assert not target.store.import_runs([capsule])[0].is_new


def test_a_run_that_has_ended_is_copied_with_its_keys(bench: Bench, target: Bench) -> None:
    busy(bench)
    bench.write(bench.row("r1"), b"end", kind=Kind.END, change=End(State.FAILED))
    capsule = carried(bench, target)
    target.store.import_runs([capsule])
    assert portable(target.store.export_run("r1")) == portable(capsule)
    bench.store.prune(ended_before_ms=2**50)
    pruned = bench.store.export_run("r1")
    assert pruned.records == ()
    assert {key.state for key in pruned.keys} == {KeyState.FREE, KeyState.PRUNED}
    assert not target.store.import_runs([pruned])[0].is_new
    target.store.prune(ended_before_ms=2**40, forget_before_ms=2**50)
    assert target.store.import_runs([pruned])[0].is_new
    assert portable(target.store.export_run("r1")) == portable(pruned)
    assert faults(target) == []


def test_several_runs_are_imported_all_or_none(bench: Bench, target: Bench) -> None:
    bench.create("r1")
    bench.create("r2")
    capsules = [bench.store.export_run(run) for run in ("r1", "r2")]
    damaged = replace(capsules[1], run=replace(capsules[1].run, length=9))
    before = target.snapshot()
    with pytest.raises(Corrupt):
        target.store.import_runs([capsules[0], damaged])
    assert target.snapshot() == before
    assert [one.run.number for one in target.store.import_runs(capsules)] == [1, 2]


def test_a_key_that_the_store_has_otherwise_is_refused_and_both_are_named(
    bench: Bench, target: Bench
) -> None:
    busy(bench)
    capsule = carried(bench, target)
    other = target.running("other")
    target.write(other, b"x", keys=[reserve("done by r1"), SettleKey("done by r1", b"second")])
    before = target.snapshot(("held by r1", "done by r1"))
    with pytest.raises(KeyConflict, match=r"'r1'.*'other'") as caught:
        target.store.import_runs([capsule])
    assert caught.value.remedy
    assert target.snapshot(("held by r1", "done by r1")) == before


def test_a_free_key_gives_way_and_keeps_the_higher_generation(bench: Bench, target: Bench) -> None:
    from ninelives.core.model.key import ReleaseKey

    busy(bench)
    other = target.running("other")
    other = target.write(other, b"x", keys=[reserve("held by r1")])
    target.write(other, b"x", keys=[ReleaseKey("held by r1")], change=Park(None, "", other.news))
    target.store.import_runs([carried(bench, target)])
    key = target.store.read_keys(["held by r1"])["held by r1"]
    assert (key.run, key.generation, key.state) == ("r1", 1, KeyState.RESERVED)
    assert target.store.export_run("r1").keys[1] == key
    assert faults(target) == []


def test_another_run_of_the_same_id_is_refused(bench: Bench, target: Bench) -> None:
    bench.create("r1")
    target.create("r1", body=b"other")
    before = target.snapshot()
    with pytest.raises(IdConflict, match="another history"):
        target.store.import_runs([bench.store.export_run("r1")])
    older = bench.store.export_run("r1")
    target.store.prune(ended_before_ms=0)
    assert target.snapshot() == before
    bench.session("s1", lease_ms=1_000_000)
    bench.write(bench.claim("r1"), b"x")
    with pytest.raises(IdConflict):
        target.store.import_runs([bench.store.export_run("r1")])
    assert older.run.length == 1


def test_a_taken_item_and_a_missing_blob_are_refused(bench: Bench, target: Bench) -> None:
    busy(bench)
    capsule = bench.store.export_run("r1")
    with pytest.raises(BadRecord, match="blob"):
        target.store.import_runs([capsule])
    target.write(target.running("other"), b"x", opens=[new_item("item of r1")])
    with pytest.raises(IdConflict, match="item of r1"):
        target.store.import_runs([carried(bench, target)])
    assert target.store.read_run("r1") is None


def test_an_unknown_run_has_no_capsule(bench: Bench) -> None:
    for name in ("nobody", "\ud800", "a\0b"):
        with pytest.raises(UnknownRun):
            bench.store.export_run(name)


def test_a_damaged_run_has_no_capsule(bench: Bench) -> None:
    run = bench.running()
    bench.write(run, b"x", b"y")
    bench.damage("r1", 1)
    with pytest.raises(Corrupt):
        bench.store.export_run("r1")


_KEY = Key(
    key="k",
    action="a",
    fingerprint=b"f",
    run="r1",
    resumable=True,
    state=KeyState.RESERVED,
    generation=0,
    body=b"",
    blobs=(),
    changed_ms=0,
)


def _row(**fields: object) -> Callable[[Capsule], Capsule]:
    return lambda one: replace(one, run=replace(one.run, **fields))


SPOILED: list[Callable[[Capsule], Capsule]] = [
    _row(id="other"),
    _row(id="a\0b"),
    _row(agent=""),
    _row(epoch=-1),
    _row(epoch=2**63),
    _row(length=2),
    _row(base=1),
    _row(head=b"x" * 16),
    _row(base_check=b"x"),
    _row(session="s1"),
    _row(state=State.RUNNING),
    _row(is_alone=True),
    _row(waits="a\0b"),
    _row(progress="{"),
    _row(labels={"a": ""}),
    _row(labels={"\n": "a"}),
    _row(priority=2**40),
    _row(fingerprint=b"x" * 65),
    lambda one: replace(one, records=()),
    lambda one: replace(one, records=one.records * 2),
    lambda one: replace(one, records=(replace(one.records[0], body=b"other"),)),
    lambda one: replace(one, records=(replace(one.records[0], body=b"x" * 100_000),)),
    lambda one: replace(one, records=(replace(one.records[0], kind=Kind.RESULT),)),
    lambda one: replace(one, last_signal=-1),
    lambda one: replace(one, last_signal=2**40),
    lambda one: replace(one, keys=(replace(_KEY, run="other"),)),
    lambda one: replace(one, keys=(replace(_KEY, key=""),)),
    lambda one: replace(one, keys=(_KEY, _KEY)),
    lambda one: replace(one, keys=(replace(_KEY, blobs=(b"short",)),)),
    lambda one: replace(one, keys=(replace(_KEY, generation=-1),)),
    lambda one: replace(
        one,
        keys=(_KEY,),
        run=replace(one.run, state=State.COMPLETED),
    ),
]


def test_a_capsule_that_no_store_would_write_is_refused(bench: Bench) -> None:
    oracle = make_bench("memory", SteppingClock(), Path())
    oracle.create()
    before = bench.snapshot()
    for spoil in SPOILED:
        with pytest.raises(NineLivesError):
            bench.store.import_runs([spoil(oracle.store.export_run("r1"))])
    assert bench.snapshot() == before


def test_no_earlier_owner_can_commit_to_an_imported_run(bench: Bench, target: Bench) -> None:
    run = bench.running()
    capsule = carried(bench, target)
    target.store.import_runs([capsule], move="m")
    target.session("s2", lease_ms=1_000_000)
    for _ in range(2):
        (verdict,) = target.store.commit([append(run, b"x")])
        assert verdict.outcome is Outcome.FENCED
        if target.due():
            target.claim("r1", "s2")


def test_a_pending_run_keeps_its_time(bench: Bench, target: Bench) -> None:
    far = bench.clock.now_ms() + 1_000_000
    bench.store.create_runs([new_run("r1", due_ms=far)])
    (imported,) = target.store.import_runs([bench.store.export_run("r1")], move="m")
    assert imported.run.due_ms == far
