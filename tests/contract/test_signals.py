"""Signals: kept in order, taken once, never lost to an end that nobody saw."""

from __future__ import annotations

import pytest

from ninelives.core.errors import BadName, BadRecord, IdConflict, NotSerializable, RunFinished, UnknownRun
from ninelives.core.model.commit import End, Escalate, Outcome, Park, Verdict
from ninelives.core.model.inbox import Signal
from ninelives.core.model.run import INLINE_BYTES, Control, Kind, State
from tests.contract.benches import Bench
from tests.contract.makers import append, new_item


def test_a_signal_is_kept_until_it_is_taken(bench: Bench) -> None:
    bench.create()
    signal = bench.store.send_signal("r1", "go", b"now", id="x")
    assert signal == Signal(run="r1", number=1, name="go", id="x", body=b"now", at_ms=bench.clock.now_ms())
    assert bench.store.load_journal("r1").signals == (signal,)


def test_order_is_kept_per_run(bench: Bench) -> None:
    bench.create("a")
    bench.create("b")
    sent = [bench.store.send_signal(run, name, b"").number for run, name in ("az", "by", "ax", "bw")]
    assert sent == [1, 1, 2, 2]
    assert [signal.name for signal in bench.store.load_journal("a").signals] == ["z", "x"]
    assert [signal.name for signal in bench.store.load_journal("b").signals] == ["y", "w"]


def test_a_signal_makes_a_parked_run_due(bench: Bench) -> None:
    bench.write(bench.running(), change=Park(bench.clock.now_ms() + 999, "waits", 0))
    bench.clock.advance(5)
    bench.store.send_signal("r1", "go", b"")
    run = bench.row("r1")
    assert (run.news, run.due_ms, run.changed_ms) == (1, bench.clock.now_ms(), bench.clock.now_ms())


def test_a_run_that_was_due_earlier_keeps_its_place(bench: Bench) -> None:
    bench.write(bench.running(), change=Park(7, "", 0))
    bench.store.send_signal("r1", "go", b"")
    assert bench.row("r1").due_ms == 7


def test_a_signal_is_news_to_a_running_run(bench: Bench) -> None:
    run = bench.running()
    bench.store.send_signal("r1", "go", b"")
    assert (bench.row("r1").news, bench.row("r1").due_ms, bench.row("r1").epoch) == (1, None, run.epoch)


def test_a_signal_does_not_start_a_run_before_its_time(bench: Bench) -> None:
    due = bench.clock.now_ms() + 50
    bench.create(due_ms=due)
    bench.store.send_signal("r1", "go", b"")
    assert (bench.row("r1").news, bench.row("r1").due_ms) == (1, due)


def test_a_signal_does_not_wake_an_escalated_run(bench: Bench) -> None:
    bench.write(bench.running(), change=Escalate("doubt", 0))
    bench.store.send_signal("r1", "go", b"")
    assert (bench.row("r1").state, bench.row("r1").due_ms, bench.row("r1").news) == ("escalated", None, 1)


def test_signals_without_id_are_all_kept(bench: Bench) -> None:
    bench.create()
    first, second = bench.store.send_signal("r1", "go", b""), bench.store.send_signal("r1", "go", b"")
    assert (first.id, second.id, first.number, second.number) == ("", "", 1, 2)
    assert bench.row("r1").news == 2


def test_an_id_seen_before_gives_the_earlier_signal_and_no_news(bench: Bench) -> None:
    bench.create()
    first = bench.store.send_signal("r1", "go", b"", id="x")
    before = bench.snapshot()
    bench.clock.advance(5)
    assert bench.store.send_signal("r1", "go", b"", id="x") == first
    assert bench.snapshot() == before


def test_an_id_seen_before_is_known_after_it_was_taken_and_after_the_end(bench: Bench) -> None:
    bench.running()
    bench.store.send_signal("r1", "go", b"", id="x")
    run = bench.write(bench.row("r1"), b"x", kind=Kind.SIGNAL, takes=[1])
    assert bench.store.send_signal("r1", "go", b"", id="x").taken == 1
    bench.write(run, change=End(State.COMPLETED))
    assert bench.store.send_signal("r1", "go", b"", id="x").number == 1


@pytest.mark.parametrize(("name", "body"), [("other", b""), ("go", b"other")])
def test_an_id_seen_before_with_other_content_is_a_conflict(bench: Bench, name: str, body: bytes) -> None:
    bench.create()
    bench.store.send_signal("r1", "go", b"", id="x")
    before = bench.snapshot()
    with pytest.raises(IdConflict):
        bench.store.send_signal("r1", name, body, id="x")
    assert bench.snapshot() == before


def test_ids_are_seen_per_run(bench: Bench) -> None:
    bench.create("a")
    bench.create("b")
    bench.store.send_signal("a", "go", b"1", id="x")
    assert bench.store.send_signal("b", "go", b"2", id="x").number == 1


def test_an_unknown_run_gets_no_signal(bench: Bench) -> None:
    with pytest.raises(UnknownRun):
        bench.store.send_signal("nobody", "go", b"")


@pytest.mark.parametrize("state", [State.COMPLETED, State.FAILED, State.CANCELLED])
def test_an_ended_run_gets_no_signal(bench: Bench, state: State) -> None:
    run = bench.write(bench.running(), change=End(state))  # type: ignore[arg-type]
    with pytest.raises(RunFinished):
        bench.store.send_signal("r1", "go", b"")
    assert bench.row("r1") == run


def test_a_pending_run_cancelled_gets_no_signal(bench: Bench) -> None:
    bench.create()
    bench.store.control_run("r1", Control.CANCEL)
    with pytest.raises(RunFinished):
        bench.store.send_signal("r1", "go", b"")


@pytest.mark.parametrize("name", ["", "a\nb", "a\0b", "\ud800", "e\u0301", "x" * 256])
def test_unusable_names_and_ids_are_refused(bench: Bench, name: str) -> None:
    run = bench.create()
    with pytest.raises(BadName):
        bench.store.send_signal("r1", name, b"")
    with pytest.raises(BadName):
        bench.store.send_signal("r1", "go", b"", id=name)
    assert bench.row("r1") == run


def test_a_body_over_the_limit_is_refused(bench: Bench) -> None:
    run = bench.create()
    with pytest.raises(NotSerializable):
        bench.store.send_signal("r1", "go", b"x" * (INLINE_BYTES + 1))
    assert bench.row("r1") == run
    assert len(bench.store.send_signal("r1", "go", b"x" * INLINE_BYTES).body) == INLINE_BYTES


# Taking ------------------------------------------------------------------------------------------


def test_taking_names_the_record_that_took_it(bench: Bench) -> None:
    bench.running()
    for name in ("a", "b", "c"):
        bench.store.send_signal("r1", name, b"", id=name)
    run = bench.write(bench.row("r1"), b"intent", kind=Kind.INTENT)
    bench.write(run, b"c", b"a", kind=Kind.SIGNAL, takes=[3, 1])
    assert [bench.store.send_signal("r1", name, b"", id=name).taken for name in "abc"] == [3, None, 2]
    assert [signal.name for signal in bench.store.load_journal("r1").signals] == ["b"]


@pytest.mark.parametrize("takes", [[1], [2, 1], [2, 2], [3], [0], [-1]])
def test_taking_what_is_not_there_to_take_is_stale(bench: Bench, takes: list[int]) -> None:
    bench.running()
    bench.store.send_signal("r1", "a", b"")
    bench.store.send_signal("r1", "b", b"")
    run = bench.write(bench.row("r1"), b"x", kind=Kind.SIGNAL, takes=[1])
    before = bench.snapshot()
    wrong = append(run, b"x", b"y", kind=Kind.SIGNAL, takes=takes, change=End(State.COMPLETED))
    assert bench.store.commit([wrong]) == [Verdict("r1", Outcome.STALE)]
    assert bench.snapshot() == before


def test_a_signal_of_another_run_cannot_be_taken(bench: Bench) -> None:
    run = bench.running()
    bench.running("other")
    bench.store.send_signal("other", "go", b"")
    assert bench.store.commit([append(run, b"x", kind=Kind.SIGNAL, takes=[1])]) == [
        Verdict("r1", Outcome.STALE)
    ]
    assert len(bench.store.load_journal("other").signals) == 1


def test_taking_without_a_record_that_says_so_is_refused(bench: Bench) -> None:
    bench.running()
    bench.store.send_signal("r1", "go", b"")
    run = bench.row("r1")
    before = bench.snapshot()
    for wrong in (append(run, takes=[1]), append(run, b"x", takes=[1])):
        (verdict,) = bench.store.commit([wrong])
        assert verdict.outcome is Outcome.REFUSED
        assert isinstance(verdict.error, BadRecord)
    assert bench.snapshot() == before


# News --------------------------------------------------------------------------------------------


def test_news_is_told_of_runs_whose_counter_moved(bench: Bench) -> None:
    for name in ("quiet", "told", "asked"):
        bench.running(name)
    signal = bench.store.send_signal("told", "go", b"now")
    bench.store.control_run("asked", Control.PAUSE)
    found = bench.store.read_news({"asked": 0, "nobody": 0, "quiet": 0, "told": 0})
    assert [(news.run, news.signals, news.items, news.now_ms) for news in found] == [
        (bench.row("asked"), (), (), bench.clock.now_ms()),
        (bench.row("told"), (signal,), (), bench.clock.now_ms()),
    ]
    assert bench.store.read_news({"asked": 1, "quiet": 0, "told": 1}) == []


def test_news_leaves_out_signals_that_were_taken(bench: Bench) -> None:
    bench.running()
    for name in ("a", "b"):
        bench.store.send_signal("r1", name, b"")
    bench.write(bench.row("r1"), b"a", kind=Kind.SIGNAL, takes=[1])
    (news,) = bench.store.read_news({"r1": 0})
    assert [signal.name for signal in news.signals] == ["b"]


def test_news_brings_items_with_their_answers(bench: Bench) -> None:
    run = bench.running()
    bench.write(run, b"x", opens=[new_item("i1")])
    answered = bench.store.answer_item("i1", digest=b"d", body=b"yes", by="ada")
    (news,) = bench.store.read_news({"r1": 0})
    assert news.items == (answered,)
