"""Commits: appended whole, fenced by epoch, length and head, and harmless when made twice."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from ninelives.core.errors import BadRecord, UnknownRun, UsageError
from ninelives.core.model.commit import Commit, End, Escalate, Outcome, Park, Verdict
from ninelives.core.model.run import INLINE_BYTES, Control, Kind, RunRow, State
from ninelives.core.model.session import Cause
from tests.contract.benches import Bench
from tests.contract.makers import append, new_item, new_run, reserve


def commit(bench: Bench, *batch: Commit) -> list[Outcome]:
    return [verdict.outcome for verdict in bench.store.commit(batch)]


def refused(bench: Bench, wrong: Commit, outcome: Outcome = Outcome.FENCED) -> Verdict:
    """Commit what must not go through, and see that nothing of it is left."""
    before = bench.snapshot()
    bench.clock.advance(1)
    (verdict,) = bench.store.commit([wrong])
    assert (verdict.run, verdict.outcome) == (wrong.run, outcome)
    bench.clock.advance(-1)
    assert bench.snapshot() == before
    return verdict


def loaded(run: RunRow) -> Commit:
    """Return a commit with something of everything, so that a leak of any part shows."""
    return append(
        run,
        b"x",
        keys=[reserve("k"), reserve("k2")],
        opens=[new_item()],
        change=Park(9, "waits", run.news),
    )


def test_records_are_appended_and_the_row_follows(bench: Bench) -> None:
    run = bench.running()
    bench.clock.advance(5)
    made = append(run, b"one", b"two", kind=Kind.INTENT)
    assert bench.store.commit([made]) == [Verdict("r1", Outcome.COMMITTED)]
    after = bench.row("r1")
    assert (after.length, after.head) == (3, made.records[-1].check)
    assert (after.state, after.session, after.epoch) == (run.state, run.session, run.epoch)
    assert after.changed_ms == bench.clock.now_ms()
    journal = bench.store.load_journal("r1")
    assert journal.records[1:] == made.records
    assert (journal.run, journal.first) == (after, 0)


def test_an_empty_batch_is_nothing(bench: Bench) -> None:
    assert bench.store.commit([]) == []


def test_one_verdict_per_commit_in_order(bench: Bench) -> None:
    runs = [bench.running(name) for name in ("c", "a", "b")]
    verdicts = bench.store.commit([append(run, b"x") for run in runs])
    assert [verdict.run for verdict in verdicts] == ["c", "a", "b"]
    assert {verdict.outcome for verdict in verdicts} == {Outcome.COMMITTED}


def test_a_run_occurs_at_most_once_in_a_batch(bench: Bench) -> None:
    run = bench.running()
    before = bench.snapshot()
    with pytest.raises(UsageError):
        bench.store.commit([append(run, b"x"), append(run, b"x")])
    assert bench.snapshot() == before


def test_commit_with_an_old_epoch_is_fenced_and_writes_nothing(bench: Bench) -> None:
    old = bench.running()
    bench.store.end_sessions(["s1"], Cause.EXPIRED)
    bench.session("s2")
    bench.claim("r1", "s2")
    refused(bench, loaded(old))
    refused(bench, append(old))


def test_commit_with_a_later_epoch_is_fenced(bench: Bench) -> None:
    run = bench.running()
    refused(bench, loaded(replace(run, epoch=run.epoch + 1)))
    refused(bench, append(replace(run, epoch=run.epoch + 1), b"x"))


def test_commit_at_another_length_is_fenced(bench: Bench) -> None:
    run = bench.write(bench.running(), b"one")
    refused(bench, loaded(replace(run, length=run.length - 1)))
    refused(bench, loaded(replace(run, length=run.length + 1)))
    refused(bench, append(replace(run, length=run.length - 1), b"x"))
    refused(bench, append(replace(run, length=run.length + 1), b"x"))


def test_commit_on_another_head_is_fenced(bench: Bench) -> None:
    run = bench.running()
    refused(bench, loaded(replace(run, head=b"\0" * 16)))
    refused(bench, append(replace(run, head=b"\0" * 16), b"x"))
    refused(bench, append(replace(run, head=b"\0" * 16)))


def test_commit_to_a_released_run_is_fenced_before_it_is_claimed_again(bench: Bench) -> None:
    run = bench.running()
    bench.store.end_sessions(["s1"], Cause.STOPPED)
    refused(bench, loaded(run))
    refused(bench, append(run))


def test_commit_to_a_run_that_nobody_claimed_is_fenced(bench: Bench) -> None:
    refused(bench, loaded(bench.create()))


@pytest.mark.parametrize(
    "change",
    [Park(None, "", 0), Escalate("", 0), End(State.COMPLETED), End(State.FAILED), End(State.CANCELLED)],
)
def test_commit_after_the_run_was_left_is_fenced(bench: Bench, change: Park | Escalate | End) -> None:
    run = bench.running()
    left = bench.write(run, b"last", change=change)
    refused(bench, append(left, b"more"))
    refused(bench, append(left, b"more", change=change))
    refused(bench, append(run, b"instead"))


def test_commit_to_an_unknown_run_is_refused(bench: Bench) -> None:
    run = bench.running()
    verdict = refused(bench, append(replace(run, id="nobody"), b"x"), Outcome.REFUSED)
    assert isinstance(verdict.error, UnknownRun)


@pytest.mark.parametrize(
    "change",
    [None, Park(9, "", 0), Escalate("", 0), End(State.COMPLETED), End(State.FAILED), End(State.CANCELLED)],
)
def test_the_same_commit_again_is_committed_and_changes_nothing(
    bench: Bench, change: Park | Escalate | End | None
) -> None:
    bench.session("s1", lease_ms=1_000_000)
    bench.create("parent", due_ms=bench.clock.now_ms() + 1_000)
    run = bench.running(parent="parent")
    bench.store.send_signal("r1", "go", b"")
    run = bench.row("r1")
    if change is not None and not isinstance(change, End):
        change = replace(change, news_seen=run.news)
    made = append(
        run,
        b"x",
        kind=Kind.SIGNAL,
        takes=[1],
        keys=[reserve("k"), reserve("k2", resumable=False)],
        opens=[new_item()],
        change=change,
    )
    assert commit(bench, made) == ["committed"]
    before = bench.snapshot()
    bench.clock.advance(5)
    assert bench.store.commit([made]) == [Verdict("r1", Outcome.COMMITTED)]
    bench.clock.advance(-5)
    assert bench.snapshot() == before


@pytest.mark.parametrize("change", [Park(None, "", 0), Escalate("", 0), End(State.FAILED)])
def test_the_same_change_without_records_again_changes_nothing(
    bench: Bench, change: Park | Escalate | End
) -> None:
    made = append(bench.running(), change=change)
    assert commit(bench, made) == ["committed"]
    before = bench.snapshot()
    assert commit(bench, made) == ["committed"]
    assert bench.snapshot() == before


def test_a_commit_of_nothing_tells_whether_the_run_is_still_ones_own(bench: Bench) -> None:
    run = bench.running()
    before = bench.snapshot()
    assert commit(bench, append(run)) == ["committed"]
    assert bench.snapshot() == before


def test_the_same_commit_after_the_next_claim_is_fenced(bench: Bench) -> None:
    made = append(bench.running(), b"x", change=Park(0, "", 0))
    assert commit(bench, made) == ["committed"]
    bench.claim("r1")
    refused(bench, made)


def test_the_same_end_after_a_retry_is_fenced(bench: Bench) -> None:
    made = append(bench.running(), b"x", change=End(State.FAILED))
    assert commit(bench, made) == ["committed"]
    bench.store.control_run("r1", Control.RETRY)
    refused(bench, made)


def test_refused_commit_leaves_others_of_the_batch_alone(bench: Bench) -> None:
    runs = [bench.running(f"r{n}") for n in range(5)]
    bench.write(runs[4], keys=[reserve("k2")], change=Park(None, "", 0))
    batch = [
        append(runs[0], b"fine"),
        replace(
            append(runs[1], b"unsealed"), records=(replace(append(runs[1], b"u").records[0], check=b""),)
        ),
        append(replace(runs[2], epoch=9), b"fenced"),
        append(runs[3], b"fine", keys=[reserve("k")]),
    ]
    assert commit(bench, *batch) == ["committed", "refused", "fenced", "committed"]
    assert [bench.row(f"r{n}").length for n in range(4)] == [2, 1, 1, 2]
    assert bench.row("r1") == runs[1]
    assert bench.row("r2") == runs[2]


def test_a_commit_refused_at_its_last_part_leaves_no_trace_of_the_first(bench: Bench) -> None:
    other = bench.running("other")
    bench.write(other, b"x", keys=[reserve("k2")])
    run = bench.running()
    bench.store.send_signal("r1", "go", b"")
    bench.write(bench.row("r1"), b"x", opens=[new_item("mine")])
    run = bench.row("r1")
    wrong = append(
        run,
        b"x",
        kind=Kind.SIGNAL,
        takes=[1],
        closes=["mine"],
        opens=[new_item("i2")],
        keys=[reserve("k"), reserve("k2")],
        change=End(State.COMPLETED),
    )
    refused(bench, wrong, Outcome.HELD)
    refused(bench, replace(wrong, keys=(reserve("k"), reserve("k2", fp=b"other"))), Outcome.REFUSED)
    assert commit(bench, replace(wrong, keys=(reserve("k"),))) == ["committed"]


def test_later_commits_of_a_batch_see_what_earlier_ones_did(bench: Bench) -> None:
    one, two = bench.running("a"), bench.running("b")
    assert commit(bench, append(one, b"x", keys=[reserve()]), append(two, b"x", keys=[reserve()])) == [
        "committed",
        "held",
    ]


# Content -----------------------------------------------------------------------------------------


def misnumbered(run: RunRow) -> Commit:
    made = append(run, b"one", b"two")
    return replace(made, records=(made.records[0], replace(made.records[1], seq=9)))


def unsealed(run: RunRow) -> Commit:
    made = append(run, b"one")
    return replace(made, records=(replace(made.records[0], check=b"short"),))


def too_large(run: RunRow) -> Commit:
    return append(run, b"x" * (INLINE_BYTES + 1))


def on_a_missing_blob(run: RunRow) -> Commit:
    return append(run, b"", blobs=(b"\1" * 16,))


def with_a_broken_step(run: RunRow) -> Commit:
    made = append(run, b"one")
    return replace(made, records=(replace(made.records[0], step="a\0b"),))


def with_a_lone_surrogate(run: RunRow) -> Commit:
    made = append(run, b"one")
    return replace(made, records=(replace(made.records[0], step="\ud800"),))


def before_1970(run: RunRow) -> Commit:
    made = append(run, b"one")
    return replace(made, records=(replace(made.records[0], at_ms=-1),))


def after_all_time(run: RunRow) -> Commit:
    made = append(run, b"one")
    return replace(made, records=(replace(made.records[0], at_ms=2**63),))


def waiting_for_ever(run: RunRow) -> Commit:
    return append(run, b"one", change=Park(2**63, "", 0))


def waiting_for_nothing_printable(run: RunRow) -> Commit:
    return append(run, b"one", change=Escalate("\ud800", 0))


WRONG = [
    misnumbered,
    unsealed,
    too_large,
    on_a_missing_blob,
    with_a_broken_step,
    with_a_lone_surrogate,
    before_1970,
    after_all_time,
    waiting_for_ever,
    waiting_for_nothing_printable,
]


@pytest.mark.parametrize("make", WRONG, ids=lambda make: make.__name__)
def test_wrong_content_is_refused_with_a_reason(bench: Bench, make: Callable[[RunRow], Commit]) -> None:
    run = bench.running()
    verdict = refused(bench, make(run), Outcome.REFUSED)
    assert isinstance(verdict.error, BadRecord)
    assert verdict.error.run == "r1"


def test_a_body_of_the_limit_is_kept(bench: Bench) -> None:
    bench.write(bench.running(), b"x" * INLINE_BYTES)
    assert len(bench.store.load_journal("r1").records[1].body) == INLINE_BYTES


def test_what_could_not_be_told_from_its_repetition_is_refused(bench: Bench) -> None:
    run = bench.running()
    for wrong in (append(run, keys=[reserve()]), append(run, opens=[new_item()]), append(run, closes=["i1"])):
        assert isinstance(refused(bench, wrong, Outcome.REFUSED).error, BadRecord)


def test_records_may_refer_to_blobs_that_were_put(bench: Bench) -> None:
    (digest,) = bench.store.put_blobs([b"large"])
    bench.write(bench.running(), b"", blobs=(digest,))
    (record,) = bench.store.load_journal("r1", since=1).records
    assert (record.body, record.blobs) == (b"", (digest,))


# Changes -----------------------------------------------------------------------------------------


def test_a_parked_run_waits_without_an_owner(bench: Bench) -> None:
    due = bench.clock.now_ms() + 50
    run = bench.write(bench.running(), b"x", change=Park(due, "sleeps", 0))
    assert (run.state, run.session, run.due_ms, run.waits, run.epoch) == (
        "checkpointed",
        None,
        due,
        "sleeps",
        1,
    )
    assert bench.store.claim_runs("s1", 1, {"helper": 1}).runs == ()
    bench.clock.advance(50)
    assert bench.claim("r1").waits == ""


def test_news_between_last_look_and_park_makes_the_run_due(bench: Bench) -> None:
    run = bench.running()
    bench.store.send_signal("r1", "go", b"")
    run = bench.write(run, b"x", change=Park(None, "waits", run.news))
    assert (run.state, run.due_ms, run.waits) == ("checkpointed", bench.clock.now_ms(), "waits")
    assert bench.claim("r1").state is State.RUNNING


def test_news_that_was_seen_does_not_make_a_parking_run_due(bench: Bench) -> None:
    bench.running()
    bench.store.send_signal("r1", "go", b"")
    run = bench.row("r1")
    assert run.news == 1
    assert bench.write(run, b"x", change=Park(None, "waits", 1)).due_ms is None


def test_an_escalated_run_waits_for_a_person(bench: Bench) -> None:
    run = bench.write(bench.running(), b"x", opens=[new_item()], change=Escalate("doubt", 0))
    assert (run.state, run.session, run.due_ms, run.waits) == ("escalated", None, None, "doubt")
    assert bench.store.claim_runs("s1", 1, {"helper": 1}).runs == ()


def test_news_not_seen_keeps_a_run_from_escalating(bench: Bench) -> None:
    run = bench.running()
    bench.store.send_signal("r1", "go", b"")
    run = bench.write(run, b"x", change=Escalate("doubt", run.news))
    assert (run.state, run.due_ms, run.waits) == ("checkpointed", bench.clock.now_ms(), "doubt")


@pytest.mark.parametrize("state", [State.COMPLETED, State.FAILED, State.CANCELLED])
def test_an_ended_run_has_no_owner_and_is_never_due(bench: Bench, state: State) -> None:
    run = bench.write(bench.running(), b"x", kind=Kind.END, change=End(state))  # type: ignore[arg-type]
    assert (run.state, run.session, run.due_ms, run.waits) == (state, None, None, "")
    assert bench.store.claim_runs("s1", 1, {"helper": 1}).runs == ()


@pytest.mark.parametrize("state", [State.COMPLETED, State.FAILED, State.CANCELLED])
def test_ending_a_run_tells_its_parent(bench: Bench, state: State) -> None:
    parent = bench.write(bench.running("parent"), b"x", change=Park(None, "child", 0))
    child = bench.running("child", parent="parent")
    bench.clock.advance(5)
    bench.write(child, b"x", change=End(state))  # type: ignore[arg-type]
    told = bench.row("parent")
    assert (told.news, told.due_ms) == (parent.news + 1, bench.clock.now_ms())


def test_a_child_without_its_parent_ends_all_the_same(bench: Bench) -> None:
    bench.write(bench.running(parent="never was"), change=End(State.COMPLETED))
    assert bench.store.read_run("never was") is None


def test_a_parent_that_has_ended_is_not_told(bench: Bench) -> None:
    running, child = bench.running("parent"), bench.running("child", parent="parent")
    parent = bench.write(running, change=End(State.COMPLETED))
    bench.clock.advance(5)
    bench.write(child, change=End(State.COMPLETED))
    assert bench.row("parent") == parent


def test_parent_and_child_in_one_batch_miss_nothing(bench: Bench) -> None:
    parent = bench.running("parent")
    child = bench.running("child", parent="parent")
    ends, parks = (
        append(child, b"x", change=End(State.COMPLETED)),
        append(parent, b"x", change=Park(None, "", 0)),
    )
    assert commit(bench, ends, parks) == ["committed", "committed"]
    assert bench.row("parent").due_ms == bench.clock.now_ms()
    parent, child = bench.claim("parent"), bench.running("child2", parent="parent")
    assert commit(
        bench,
        append(parent, b"x", change=Park(None, "", parent.news)),
        append(child, b"x", change=End(State.COMPLETED)),
    ) == ["committed", "committed"]
    assert bench.row("parent").due_ms == bench.clock.now_ms()


def test_many_ends_in_one_batch_are_as_each_alone(bench: Bench) -> None:
    """One with a key that another waits for, one with a child, one with an open item, two plain ones."""
    runs = {name: bench.running(name) for name in ("a", "b", "c", "d", "e")}
    bench.store.create_runs([new_run("child", agent="other", parent="b")])
    bench.write(runs["a"], b"x", keys=[reserve("k", resumable=False)])
    bench.write(runs["c"], b"x", opens=[new_item("i")])
    ends = [append(bench.row(name), b"end", kind=Kind.END, change=End(State.COMPLETED)) for name in runs]
    assert commit(bench, *ends) == [Outcome.COMMITTED] * 5
    for name in runs:
        after = bench.row(name)
        assert (after.state, after.session, after.due_ms, after.waits) == ("completed", None, None, "")
        assert bench.store.load_journal(name).records[-1].body == b"end"
    assert bench.store.read_keys(["k"])["k"].state == "orphaned"
    assert [item.state for item in bench.store.list_inbox(answered=True)] == ["closed"]
    assert commit(bench, *ends) == [Outcome.COMMITTED] * 5
    fenced = replace(ends[3], epoch=9)
    assert commit(bench, fenced, append(bench.running("f"), b"x")) == [Outcome.FENCED, Outcome.COMMITTED]
