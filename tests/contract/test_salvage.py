"""Salvage: a damaged tail is given up where that forgets nothing, and left alone where it would."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from ninelives.core.errors import Corrupt, LeaseLost, UnknownRun
from ninelives.core.journal import chain
from ninelives.core.journal.salvage import read_salvaged, salvaged
from ninelives.core.model.commit import End, Outcome
from ninelives.core.model.run import Kind, RunRow, State
from ninelives.core.model.session import Cause
from tests.contract.benches import Bench
from tests.contract.makers import append, damage_in, new_item, reserve


def written(bench: Bench, count: int = 4, *, effect_length: int = 0, kind: Kind = Kind.RESULT) -> RunRow:
    """Return a run that its owner has given records after record 0."""
    run = bench.running()
    for number in range(count):
        commit = replace(append(run, b"%d" % number, kind=kind), effect_length=effect_length)
        (verdict,) = bench.store.commit([commit])
        assert verdict.outcome is Outcome.COMMITTED
        run = bench.row("r1")
    return run


def test_a_sound_journal_is_left_alone(bench: Bench) -> None:
    run = written(bench)
    before = bench.snapshot()
    assert bench.store.salvage("r1", run.epoch) == run
    assert bench.snapshot() == before


@pytest.mark.parametrize("at", [1, 2, 3, 4])
def test_a_damaged_tail_is_given_up_and_said(bench: Bench, at: int) -> None:
    run = written(bench)
    records = bench.store.load_journal("r1", since=0).records
    bench.damage("r1", at)
    with pytest.raises(Corrupt):
        bench.store.load_journal("r1", since=0)
    after = bench.store.salvage("r1", run.epoch)
    assert (after.length, after.epoch, after.state) == (at + 1, run.epoch, State.RUNNING)
    journal = bench.store.load_journal("r1", since=0)
    assert journal.records[:-1] == records[:at]
    assert journal.records[-1].kind is Kind.SALVAGED
    said = read_salvaged(journal.records[-1])
    assert (said.first, said.length) == (at, 5)
    assert f"record{'s' if at < 4 else ''} {at}" in str(said)
    assert damage_in(bench.store) == []
    assert bench.store.salvage("r1", run.epoch) == bench.row("r1")
    # The owner goes on from there, and nobody else from where it was.
    assert bench.store.commit([append(run, b"old")])[0].outcome is Outcome.FENCED
    bench.write(bench.row("r1"), b"new", change=End(State.COMPLETED))


def test_records_beyond_the_row_are_not_taken_for_verified(bench: Bench) -> None:
    run = written(bench)
    records = bench.store.load_journal("r1", since=0).records
    behind = replace(run, length=3, head=records[2].check)
    assert salvaged(behind, records, "a checksum fails", 1) is None
    found = salvaged(replace(behind, head=b"other"), records, "a checksum fails", 1)
    assert found is not None
    after, said = found
    assert (said.seq, after.length) == (3, 4)
    assert chain.follows(records[2].check, said)


def test_what_an_effect_rests_on_is_not_given_up(bench: Bench) -> None:
    run = written(bench, effect_length=3)
    bench.damage("r1", 3)
    assert bench.store.salvage("r1", run.epoch).length == 4
    bench.damage("r1", 2)
    before = bench.row("r1")
    with pytest.raises(Corrupt, match="record 2 on"):
        bench.store.salvage("r1", run.epoch)
    assert bench.row("r1") == before


@pytest.mark.parametrize("what", ["key", "item", "signal", "output"])
def test_what_took_or_gave_something_is_not_given_up(bench: Bench, what: str) -> None:
    run = bench.running()
    if what == "key":
        run = bench.write(run, b"x", keys=[reserve()])
    elif what == "item":
        run = bench.write(run, b"x", opens=[new_item()])
    elif what == "signal":
        number = bench.store.send_signal("r1", "go", b"1").number
        run = bench.write(run, b"x", kind=Kind.SIGNAL, takes=[number])
    else:
        run = bench.write(run, b"{}", kind=Kind.OUTPUT)
    assert run.effect_length == 2
    bench.write(run, b"more")
    bench.damage("r1", 1)
    with pytest.raises(Corrupt):
        bench.store.salvage("r1", run.epoch)


def test_the_previous_snapshot_serves_when_the_current_one_is_damaged(bench: Bench) -> None:
    run = bench.running()
    run = bench.write(run, b"one")
    run = bench.write(run, b"snapshot 1", kind=Kind.TURN)
    run = bench.write(run, b"two")
    run = bench.write(run, b"snapshot 2", kind=Kind.TURN)
    run = bench.write(run, b"three")
    assert (run.turn, run.turn_seq, run.length) == (2, 4, 6)
    bench.damage("r1", 4)
    after = bench.store.salvage("r1", run.epoch)
    assert (after.turn, after.turn_seq, after.length) == (1, 2, 5)
    kinds = [record.kind for record in bench.store.load_journal("r1").records]
    assert kinds == [Kind.TURN, Kind.RESULT, Kind.SALVAGED]


def test_without_any_snapshot_there_is_nothing_to_go_on_from(bench: Bench) -> None:
    run = written(bench)
    bench.damage("r1", 0)
    with pytest.raises(Corrupt, match="no snapshot is left"):
        bench.store.salvage("r1", run.epoch)


def test_a_lost_blob_counts_as_damage(bench: Bench) -> None:
    (digest,) = bench.store.put_blobs([b"large"])
    run = bench.write(bench.running(), b"one")
    run = bench.write(run, b"", blobs=(digest,))
    bench.lose_blob(digest)
    assert bench.store.salvage("r1", run.epoch).length == 3
    assert bench.store.load_journal("r1", since=0).records[-1].kind is Kind.SALVAGED


def test_only_the_owner_salvages(bench: Bench) -> None:
    run = written(bench)
    bench.damage("r1", 4)
    with pytest.raises(LeaseLost):
        bench.store.salvage("r1", run.epoch - 1)
    with pytest.raises(UnknownRun):
        bench.store.salvage("nobody", 1)
    bench.store.end_sessions(["s1"], Cause.DIED)
    with pytest.raises(LeaseLost):
        bench.store.salvage("r1", run.epoch)


def test_signals_and_blobs_stay_with_a_salvaged_run(bench: Bench) -> None:
    (digest,) = bench.store.put_blobs([b"large"])
    run = bench.write(bench.running(), b"", blobs=(digest,))
    bench.store.send_signal("r1", "go", b"1", id="s")
    run = bench.write(bench.row("r1"), b"lost")
    bench.damage("r1", 2)
    bench.store.salvage("r1", run.epoch)
    journal = bench.store.load_journal("r1")
    assert [signal.name for signal in journal.signals] == ["go"]
    assert bench.store.send_signal("r1", "go", b"1", id="s").number == 1
    bench.clock.advance(10 * 3_600_000)
    assert bench.store.prune(ended_before_ms=0).blobs == 0
    assert bench.store.get_blobs([digest]) == {digest: b"large"}
