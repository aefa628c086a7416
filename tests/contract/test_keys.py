"""Business keys: one action per key over all runs, in every order of events."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from ninelives.core.errors import BadName, BadRecord, KeyConflict
from ninelives.core.model.commit import End, Outcome, Park, Verdict
from ninelives.core.model.key import (
    AdoptKey,
    DoubtKey,
    Key,
    KeyState,
    PassKey,
    ReleaseKey,
    SettleKey,
    WaitKey,
)
from ninelives.core.model.run import INLINE_BYTES, Control, RunRow, State
from tests.contract.benches import Bench
from tests.contract.makers import append, reserve

ENDS = [End(State.COMPLETED), End(State.FAILED), End(State.CANCELLED)]


def key(bench: Bench, name: str = "k") -> Key:
    return bench.store.read_keys([name])[name]


def verdict(bench: Bench, run: RunRow, *ops: object, outcome: Outcome) -> Verdict:
    """Commit key operations that must not go through, and see that nothing of them is left."""
    before = bench.snapshot()
    (answer,) = bench.store.commit([append(run, b"x", keys=ops, change=End(State.FAILED))])  # type: ignore[arg-type]
    assert answer.outcome is outcome
    assert bench.snapshot() == before
    return answer


def test_a_key_never_used_has_no_row(bench: Bench) -> None:
    bench.write(bench.running(), b"x", keys=[reserve()])
    assert list(bench.store.read_keys(["other", "k", "k", "\ud800"])) == ["k"]
    assert bench.store.read_keys([]) == {}


def test_a_reserved_key_names_its_run_and_action(bench: Bench) -> None:
    bench.write(bench.running(), b"x", keys=[reserve("ключ:1/%_'", resumable=False)])
    assert key(bench, "ключ:1/%_'") == Key(
        key="ключ:1/%_'",
        action="refund",
        fingerprint=b"a",
        run="r1",
        resumable=False,
        state=KeyState.RESERVED,
        generation=0,
        body=b"",
        blobs=(),
        changed_ms=bench.clock.now_ms(),
    )


def test_reserving_again_by_the_same_run_changes_nothing(bench: Bench) -> None:
    run = bench.write(bench.running(), b"x", keys=[reserve()])
    before = key(bench)
    bench.clock.advance(5)
    bench.write(run, b"y", keys=[reserve()])
    assert key(bench) == before


@pytest.mark.parametrize(
    "op", [None, SettleKey("k", b"done"), DoubtKey("k")], ids=["reserved", "settled", "doubt"]
)
def test_a_key_that_another_run_has_is_held_and_shown(bench: Bench, op: SettleKey | DoubtKey | None) -> None:
    bench.write(bench.running("other"), b"x", keys=[reserve(), *([op] if op else [])])
    answer = verdict(bench, bench.running(), reserve("k2"), reserve(), outcome=Outcome.HELD)
    assert answer.key == key(bench)
    assert answer.key.run == "other"


def test_a_key_settled_by_the_run_itself_is_shown(bench: Bench) -> None:
    run = bench.write(bench.running(), b"x", keys=[reserve(), SettleKey("k", b"done")])
    answer = verdict(bench, run, reserve(), outcome=Outcome.HELD)
    assert answer.key is not None
    assert answer.key.body == b"done"


@pytest.mark.parametrize("other", [reserve(action="else"), reserve(fp=b"else")])
@pytest.mark.parametrize(
    "op", [None, SettleKey("k", b"done"), DoubtKey("k")], ids=["reserved", "settled", "doubt"]
)
def test_a_key_with_other_arguments_is_a_conflict(
    bench: Bench, op: SettleKey | DoubtKey | None, other: object
) -> None:
    run = bench.write(bench.running(), b"x", keys=[reserve(), *([op] if op else [])])
    answer = verdict(bench, run, other, outcome=Outcome.REFUSED)
    assert isinstance(answer.error, KeyConflict)


def test_settling_keeps_the_result_for_all(bench: Bench) -> None:
    (digest,) = bench.store.put_blobs([b"large"])
    run = bench.write(bench.running(), b"x", keys=[reserve()])
    bench.clock.advance(5)
    bench.write(run, b"y", keys=[SettleKey("k", b"done", (digest,))])
    row = key(bench)
    assert (row.state, row.body, row.blobs, row.changed_ms) == (
        "settled",
        b"done",
        (digest,),
        bench.clock.now_ms(),
    )


def test_releasing_frees_the_key_for_the_next_generation(bench: Bench) -> None:
    run = bench.write(bench.running(), b"x", keys=[reserve()])
    bench.write(run, b"y", keys=[ReleaseKey("k")])
    assert (key(bench).state, key(bench).generation) == ("free", 1)
    bench.write(bench.running("next"), b"z", keys=[reserve(fp=b"others may come")])
    assert (key(bench).state, key(bench).generation, key(bench).run) == ("reserved", 1, "next")


def test_a_doubt_is_settled_or_released_by_its_run(bench: Bench) -> None:
    run = bench.write(bench.running(), b"x", keys=[reserve(), reserve("k2"), DoubtKey("k"), DoubtKey("k2")])
    assert (key(bench).state, key(bench, "k2").state) == ("in doubt", "in doubt")
    bench.write(run, b"y", keys=[SettleKey("k", b"done"), ReleaseKey("k2")])
    assert (key(bench).state, key(bench, "k2").state) == ("settled", "free")


def test_operations_apply_in_order(bench: Bench) -> None:
    run = bench.running()
    verdict(bench, run, SettleKey("k", b""), reserve(), outcome=Outcome.REFUSED)
    bench.write(run, b"x", keys=[reserve(), ReleaseKey("k"), reserve(), SettleKey("k", b"second")])
    assert (key(bench).state, key(bench).generation, key(bench).body) == ("settled", 1, b"second")


@pytest.mark.parametrize("op", [SettleKey("k", b"x"), ReleaseKey("k"), DoubtKey("k")])
def test_only_who_holds_a_key_may_change_it(bench: Bench, op: SettleKey | ReleaseKey | DoubtKey) -> None:
    run = bench.running()
    assert isinstance(verdict(bench, run, op, outcome=Outcome.REFUSED).error, BadRecord)
    bench.write(bench.running("other"), b"x", keys=[reserve()])
    assert isinstance(verdict(bench, run, op, outcome=Outcome.REFUSED).error, BadRecord)


def test_fenced_key_operations_change_no_key(bench: Bench) -> None:
    run = bench.running()
    verdict(bench, replace(run, epoch=7), reserve(), outcome=Outcome.FENCED)
    run = bench.write(run, b"x", keys=[reserve()])
    verdict(bench, replace(run, epoch=7), SettleKey("k", b"late"), outcome=Outcome.FENCED)
    verdict(bench, replace(run, length=1), ReleaseKey("k"), outcome=Outcome.FENCED)


@pytest.mark.parametrize("end", ENDS, ids=lambda end: end.state)
def test_ending_frees_resumable_keys_and_doubts_the_others(bench: Bench, end: End) -> None:
    run = bench.write(
        bench.running(),
        b"x",
        keys=[
            reserve("free"),
            reserve("doubt", resumable=False),
            reserve("done"),
            SettleKey("done", b"!"),
            reserve("doubted"),
            DoubtKey("doubted"),
        ],
    )
    bench.clock.advance(5)
    bench.write(run, b"y", keys=[reserve("last", resumable=False)], change=end)
    states = {
        row.key: row.state.value
        for row in bench.store.read_keys(["free", "doubt", "done", "doubted", "last"]).values()
    }
    assert states == {
        "free": "free",
        "doubt": "orphaned",
        "done": "settled",
        "doubted": "orphaned",
        "last": "orphaned",
    }
    assert key(bench, "free").generation == 0
    assert key(bench, "free").changed_ms == bench.clock.now_ms()


def test_ending_leaves_keys_alone_that_went_to_another_run(bench: Bench) -> None:
    run = bench.write(bench.running(), b"x", keys=[reserve(), ReleaseKey("k")])
    bench.write(bench.running("next"), b"x", keys=[reserve()])
    bench.write(run, b"y", change=End(State.COMPLETED))
    assert (key(bench).run, key(bench).state) == ("next", "reserved")


def test_parking_keeps_the_keys(bench: Bench) -> None:
    bench.write(bench.running(), b"x", keys=[reserve()], change=Park(None, "", 0))
    assert key(bench).state is KeyState.RESERVED


# Waiting -----------------------------------------------------------------------------------------


def waiting(bench: Bench, *ops: object) -> tuple[RunRow, RunRow]:
    """Let `owner` hold k and `r1` wait for it."""
    owner = bench.write(bench.running("owner"), b"x", keys=ops or [reserve()])
    run = bench.write(bench.running(), b"x", keys=[WaitKey("k")], change=Park(None, "k", 0))
    assert (run.due_ms, run.news) == (None, 0)
    return owner, run


def is_told(bench: Bench, times: int = 1) -> bool:
    run = bench.row("r1")
    assert run.news in (0, times)
    assert (run.due_ms is not None) == (run.news > 0)
    return run.news == times


@pytest.mark.parametrize("op", [SettleKey("k", b"done"), ReleaseKey("k")])
def test_settling_or_releasing_tells_who_waits(bench: Bench, op: SettleKey | ReleaseKey) -> None:
    owner, _ = waiting(bench)
    bench.clock.advance(5)
    bench.write(owner, b"y", keys=[op])
    assert is_told(bench)
    assert bench.row("r1").due_ms == bench.clock.now_ms()


@pytest.mark.parametrize("op", [SettleKey("k", b"done"), ReleaseKey("k")])
def test_a_doubt_is_no_news_but_its_end_is(bench: Bench, op: SettleKey | ReleaseKey) -> None:
    owner, _ = waiting(bench)
    owner = bench.write(owner, b"y", keys=[DoubtKey("k")])
    assert not is_told(bench)
    bench.write(owner, b"z", keys=[op])
    assert is_told(bench)


@pytest.mark.parametrize("end", ENDS, ids=lambda end: end.state)
@pytest.mark.parametrize("resumable", [True, False])
def test_the_end_of_the_owner_tells_who_waits(bench: Bench, end: End, resumable: bool) -> None:
    owner, _ = waiting(bench, reserve(resumable=resumable))
    bench.write(owner, b"y", change=end)
    assert is_told(bench)


def test_who_was_told_is_not_told_again(bench: Bench) -> None:
    owner, _ = waiting(bench)
    owner = bench.write(owner, b"y", keys=[ReleaseKey("k"), reserve()])
    assert is_told(bench)
    bench.write(owner, b"z", keys=[SettleKey("k", b"")])
    assert is_told(bench)


def test_who_was_told_and_asks_again_is_told_again(bench: Bench) -> None:
    owner = bench.write(bench.running("owner"), b"x", keys=[reserve()])
    run = bench.write(bench.running(), b"x", keys=[WaitKey("k")])
    for number in (1, 2):
        owner = bench.write(owner, b"y", keys=[ReleaseKey("k"), reserve()])
        assert bench.row("r1").news == number
        run = bench.write(bench.row(run.id), b"y", keys=[WaitKey("k")])
    bench.write(owner, b"z", keys=[SettleKey("k", b"")])
    assert bench.row("r1").news == 3


def test_all_who_wait_are_told(bench: Bench) -> None:
    owner, _ = waiting(bench)
    bench.write(bench.running("r2"), b"x", keys=[WaitKey("k")], change=Park(None, "k", 0))
    third = bench.write(bench.running("r3"), b"x", keys=[WaitKey("k")])
    assert third.news == 0
    bench.write(owner, b"y", keys=[SettleKey("k", b"")])
    assert [bench.row(name).news for name in ("r1", "r2", "r3")] == [1, 1, 1]
    assert [bench.row(name).due_ms is None for name in ("r1", "r2", "r3")] == [False, False, True]


def test_waiting_twice_tells_once(bench: Bench) -> None:
    owner = bench.write(bench.running("owner"), b"x", keys=[reserve()])
    run = bench.write(bench.running(), b"x", keys=[WaitKey("k"), WaitKey("k")])
    bench.write(run, b"y", keys=[WaitKey("k")], change=Park(None, "k", 0))
    bench.write(owner, b"y", keys=[SettleKey("k", b"")])
    assert is_told(bench)


@pytest.mark.parametrize("ops", [[], [reserve(), SettleKey("k", b"")], [reserve(), ReleaseKey("k")]])
def test_waiting_for_a_key_that_is_not_held_any_more_is_news_at_once(bench: Bench, ops: list[object]) -> None:
    bench.write(bench.running("owner"), b"x", keys=ops)
    run = bench.write(bench.running(), b"x", keys=[WaitKey("k")], change=Park(None, "k", 0))
    assert (run.state, run.news, run.due_ms) == ("checkpointed", 1, bench.clock.now_ms())


def test_waiting_for_ones_own_key_is_news_at_once(bench: Bench) -> None:
    run = bench.write(bench.running(), b"x", keys=[reserve(), WaitKey("k")], change=Park(None, "k", 0))
    assert (run.news, run.due_ms) == (1, bench.clock.now_ms())


def test_nobody_waits_for_a_doubtful_key_of_an_ended_run(bench: Bench) -> None:
    bench.write(bench.running("owner"), b"x", keys=[reserve(resumable=False)], change=End(State.FAILED))
    run = bench.write(bench.running(), b"x", keys=[WaitKey("k")], change=Park(None, "k", 0))
    assert (run.news, run.due_ms) == (1, bench.clock.now_ms())


def test_a_doubtful_key_of_an_ended_run_is_adopted_by_one_asker(bench: Bench) -> None:
    bench.write(bench.running("owner"), b"x", keys=[reserve(resumable=False)], change=End(State.FAILED))
    shown = verdict(bench, bench.running("asker"), reserve(resumable=False), outcome=Outcome.HELD).key
    assert shown is not None
    assert (shown.state, shown.run) == ("orphaned", "owner")
    asker = bench.write(bench.row("asker"), b"x", keys=[AdoptKey("k")])
    assert (key(bench).state, key(bench).run, key(bench).generation) == ("in doubt", "asker", 0)
    verdict(bench, bench.running("late"), AdoptKey("k"), outcome=Outcome.HELD)
    bench.write(asker, b"y", keys=[SettleKey("k", b"done")])
    assert key(bench).state is KeyState.SETTLED


def test_a_doubt_that_outlives_its_run_wakes_who_waits(bench: Bench) -> None:
    owner = bench.write(bench.running("owner"), b"x", keys=[reserve(resumable=False), DoubtKey("k")])
    bench.write(bench.running(), b"x", keys=[WaitKey("k")], change=Park(None, "k", 0))
    assert bench.row("r1").due_ms is None
    bench.write(owner, b"y", change=End(State.CANCELLED))
    assert bench.row("r1").due_ms == bench.clock.now_ms()


def test_a_key_that_is_passed_on_keeps_its_generation(bench: Bench) -> None:
    run = bench.write(bench.running(), b"x", keys=[reserve(), reserve("once", resumable=False)])
    bench.write(bench.running("next"), b"x", keys=[WaitKey("k")], change=Park(None, "k", 0))
    verdict(bench, run, PassKey("once"), outcome=Outcome.REFUSED)
    bench.write(run, b"y", keys=[PassKey("k")])
    assert (key(bench).state, key(bench).generation) == ("free", 0)
    assert bench.row("next").due_ms == bench.clock.now_ms()


def test_a_key_may_be_used_again_after_its_window(bench: Bench) -> None:
    bench.write(bench.running("first"), b"x", keys=[reserve(), SettleKey("k", b"old")])
    again = replace(reserve(fp=b"another bill"), window_ms=1_000)
    bench.clock.advance(999)
    verdict(bench, bench.running(), again, outcome=Outcome.REFUSED)
    bench.clock.advance(1)
    bench.write(bench.row("r1"), b"x", keys=[again])
    assert (key(bench).state, key(bench).generation, key(bench).body) == ("reserved", 1, b"")


def test_a_tombstone_gives_way_after_the_window_that_began_when_it_was_settled(bench: Bench) -> None:
    run = bench.write(bench.running("first"), b"x", keys=[reserve(), SettleKey("k", b"old")])
    settled_ms = key(bench).changed_ms
    bench.write(run, b"y", change=End(State.COMPLETED))
    bench.clock.advance(900)
    bench.store.prune(ended_before_ms=bench.clock.now_ms())
    assert (key(bench).state, key(bench).changed_ms) == (KeyState.PRUNED, settled_ms)
    bench.clock.advance(99)
    again = replace(reserve(), window_ms=1_000)
    answer = verdict(bench, bench.running(), again, outcome=Outcome.REFUSED)
    assert isinstance(answer.error, KeyConflict)
    assert "declare" not in str(answer.error)
    bench.clock.advance(1)
    bench.write(bench.row("r1"), b"x", keys=[replace(reserve(), window_ms=1_000)])
    assert (key(bench).state, key(bench).run) == ("reserved", "r1")


def test_the_owner_letting_go_between_look_and_park_is_not_missed(bench: Bench) -> None:
    owner = bench.write(bench.running("owner"), b"x", keys=[reserve()])
    asker = bench.running()
    outcomes = [
        answer.outcome
        for answer in bench.store.commit(
            [
                append(owner, b"y", keys=[ReleaseKey("k")]),
                append(asker, b"x", keys=[WaitKey("k")], change=Park(None, "k", 0)),
            ]
        )
    ]
    assert outcomes == [Outcome.COMMITTED, Outcome.COMMITTED]
    assert bench.row("r1").due_ms == bench.clock.now_ms()


def test_a_refused_wait_is_forgotten(bench: Bench) -> None:
    owner = bench.write(bench.running("owner"), b"x", keys=[reserve(), reserve("k2")])
    verdict(bench, bench.running(), WaitKey("k"), WaitKey("nobody's"), reserve("k2"), outcome=Outcome.HELD)
    bench.write(owner, b"y", keys=[SettleKey("k", b"")])
    assert bench.row("r1").news == 0


def test_a_run_that_ended_waits_for_nothing(bench: Bench) -> None:
    owner = bench.write(bench.running("owner"), b"x", keys=[reserve()])
    run = bench.write(bench.running(), b"x", keys=[WaitKey("k")], change=End(State.FAILED))
    bench.clock.advance(5)
    bench.write(owner, b"y", keys=[SettleKey("k", b"")])
    assert bench.row("r1") == run


def test_a_run_that_failed_and_is_retried_does_not_wait_any_more(bench: Bench) -> None:
    owner = bench.write(bench.running("owner"), b"x", keys=[reserve()])
    bench.write(bench.running(), b"x", keys=[WaitKey("k")], change=End(State.FAILED))
    retried = bench.store.control_run("r1", Control.RETRY)
    bench.write(owner, b"y", keys=[SettleKey("k", b"")])
    assert bench.row("r1") == retried


# Content -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["", "a\nb", "a\0b", "\ud800", "e\u0301", "x" * 10_000])
@pytest.mark.parametrize("make", [reserve, lambda name: SettleKey(name, b""), ReleaseKey, DoubtKey, WaitKey])
def test_an_unusable_key_is_refused(bench: Bench, name: str, make: type[WaitKey]) -> None:
    assert isinstance(verdict(bench, bench.running(), make(name), outcome=Outcome.REFUSED).error, BadName)


def test_a_result_over_the_limit_is_refused(bench: Bench) -> None:
    run = bench.running()
    large = SettleKey("k", b"x" * (INLINE_BYTES + 1))
    assert isinstance(verdict(bench, run, reserve(), large, outcome=Outcome.REFUSED).error, BadRecord)
    bench.write(run, b"x", keys=[reserve(), SettleKey("k", b"x" * INLINE_BYTES)])


def test_a_result_on_a_missing_blob_is_refused(bench: Bench) -> None:
    lost = SettleKey("k", b"", (b"\1" * 16,))
    assert isinstance(
        verdict(bench, bench.running(), reserve(), lost, outcome=Outcome.REFUSED).error, BadRecord
    )
