"""Journals: what is durable of a run, in one verified read."""

from __future__ import annotations

import pytest

from ninelives.core.errors import Corrupt, UnknownRun
from ninelives.core.model.run import Kind
from ninelives.core.rules import run_rules
from tests.contract.benches import Bench
from tests.contract.makers import append, new_item, new_run, reserve


def test_an_unknown_run_has_no_journal(bench: Bench) -> None:
    with pytest.raises(UnknownRun):
        bench.store.load_journal("nobody")


def test_what_a_run_is_born_with_follows_from_its_row(bench: Bench) -> None:
    bench.clock.advance(7)
    new = new_run(body=b"arguments", labels={"team": "a"}, priority=3)
    bench.store.create_runs([new])
    row, journal = bench.row("r1"), bench.store.load_journal("r1")
    made, records = run_rules.created(new, row.number, row.created_ms)
    assert (journal.first, journal.records, made) == (0, records, row)


def test_a_turn_starts_the_journal_anew(bench: Bench) -> None:
    run = bench.write(bench.running(), b"a", b"b")
    made = append(run, b"snapshot", kind=Kind.TURN)
    bench.store.commit([made])
    run = bench.row("r1")
    assert (run.turn, run.turn_seq, run.length) == (1, 3, 4)
    bench.write(run, b"c")
    journal = bench.store.load_journal("r1")
    assert (journal.first, [record.body for record in journal.records]) == (3, [b"snapshot", b"c"])
    whole = bench.store.load_journal("r1", since=0)
    assert [record.body for record in whole.records] == [b"{}", b"a", b"b", b"snapshot", b"c"]


@pytest.mark.parametrize(("since", "first"), [(-1, 0), (0, 0), (2, 2), (4, 4), (5, 4), (99, 4)])
def test_records_from_since_on(bench: Bench, since: int, first: int) -> None:
    bench.write(bench.running(), b"a", b"b", b"c")
    journal = bench.store.load_journal("r1", since=since)
    assert journal.first == first
    assert [record.seq for record in journal.records] == list(range(first, 4))


def test_a_journal_has_the_signals_that_were_not_taken_and_all_items(bench: Bench) -> None:
    bench.running()
    for name in ("a", "b"):
        bench.store.send_signal("r1", name, b"")
    run = bench.write(
        bench.row("r1"), b"x", kind=Kind.SIGNAL, takes=[1], opens=[new_item("i2"), new_item("i1")]
    )
    bench.write(run, b"x", closes=["i2"])
    journal = bench.store.load_journal("r1")
    assert [(signal.name, signal.number) for signal in journal.signals] == [("b", 2)]
    assert [(item.id, item.state) for item in journal.items] == [("i2", "closed"), ("i1", "open")]


@pytest.mark.parametrize("seq", [0, 1, 2])
def test_a_changed_record_is_corrupt_and_other_runs_go_on(bench: Bench, seq: int) -> None:
    bench.write(bench.running(), b"a", b"b")
    bench.write(bench.running("r2"), b"a")
    bench.damage("r1", seq)
    with pytest.raises(Corrupt) as caught:
        bench.store.load_journal("r1")
    assert (caught.value.run, caught.value.seq) == ("r1", seq)
    assert len(bench.store.load_journal("r2").records) == 2


def test_another_store_object_reads_what_was_committed(bench: Bench) -> None:
    run = bench.write(bench.running(), b"a", opens=[new_item()], keys=[reserve()])
    other = bench.reopen()
    assert other.load_journal("r1") == bench.store.load_journal("r1")
    assert other.read_keys(["k"]) == bench.store.read_keys(["k"])
    assert [verdict.outcome for verdict in other.commit([append(run, b"b")])] == ["committed"]
    assert bench.row("r1").length == 3


def test_bodies_are_bytes_of_any_kind(bench: Bench) -> None:
    body = bytes(range(256))
    bench.store.create_runs([new_run("odd", agent="odd", body=body, fingerprint=body)])
    assert bench.store.load_journal("odd").records[0].body == body
    assert bench.row("odd").fingerprint == body


def test_many_journals_are_read_as_each_alone(bench: Bench) -> None:
    for name in ("r1", "r2", "r3"):
        run = bench.write(bench.running(name), b"a", opens=[new_item(f"{name}:i1"), new_item(f"{name}:i0")])
        bench.store.send_signal(name, "first", b"")
        bench.store.send_signal(name, "second", b"")
        if name == "r2":
            bench.store.commit([append(run, b"snapshot", kind=Kind.TURN)])
    found = bench.store.load_journals(["r3", "nobody", "r1", "r2", "\ud800"])
    assert [found[0], *found[2:4]] == [bench.store.load_journal(name) for name in ("r3", "r1", "r2")]
    assert [type(found[1]), type(found[4])] == [UnknownRun, UnknownRun]
    assert bench.store.load_journals([]) == []


def test_one_damaged_journal_of_many_leaves_the_others_alone(bench: Bench) -> None:
    for name in ("r1", "r2", "r3"):
        bench.write(bench.running(name), b"a")
    bench.damage("r2", 1)
    found = bench.store.load_journals(["r1", "r2", "r3"])
    assert [found[0], found[2]] == [bench.store.load_journal("r1"), bench.store.load_journal("r3")]
    assert isinstance(found[1], Corrupt)
    assert found[1].run == "r2"
