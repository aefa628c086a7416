"""One record without a ticket: the same promises, one call of the store, and nobody is left behind."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator, Sequence

import pytest

from ninelives.core.errors import Corrupt, StoreBroken, StoreUnavailable
from ninelives.core.model.commit import Commit, Outcome, Verdict
from ninelives.core.model.run import INLINE_BYTES, Kind
from ninelives.engine.commit import committer as module
from ninelives.engine.commit.ticket import Draft, Tail
from tests.unit.test_committer import LONG_SECONDS, Bench, Gate, bad, results


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.store.before = lambda _: None
    made.committer.close()


def append(bench: Bench, tail: Tail, body: bytes) -> Verdict:
    return committed(bench, tail, (Kind.RESULT, "step#0", body))


def committed(bench: Bench, tail: Tail, draft: Draft) -> Verdict:
    """Commit a record without a ticket; with one, if it needs one."""
    return bench.committer.append(tail, draft) or bench.committer.commit(tail, [draft])


def test_records_go_on_from_each_other_and_need_no_ticket(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "Ticket", None)
    verdicts = [append(bench, bench.tails[0], b"%d" % number) for number in range(3)]
    assert {one.outcome for one in verdicts} == {Outcome.COMMITTED}
    assert bench.bodies("r0") == [b"0", b"1", b"2"]
    assert [len(batch) for batch in bench.store.batches] == [1, 1, 1]


def test_what_was_queued_first_is_committed_first(bench: Bench) -> None:
    tail = bench.tails[0]
    ticket = bench.queue(tail, b"first")
    assert append(bench, tail, b"second").outcome is Outcome.COMMITTED
    assert ticket.result().outcome is Outcome.COMMITTED
    assert bench.bodies("r0") == [b"first", b"second"]


def test_who_comes_while_another_is_at_it_goes_on_from_there(bench: Bench) -> None:
    gate, tail = Gate(), bench.tails[0]
    bench.store.before = gate
    first = bench.later(lambda: bench.committer.commit(tail, results(b"first")))
    assert gate.reached.wait(LONG_SECONDS)
    second = bench.later(lambda: append(bench, tail, b"second"))
    deadline = time.monotonic() + LONG_SECONDS
    while not bench.committer._queue and time.monotonic() < deadline:
        time.sleep(0.001)
    gate.opened.set()
    first.result(LONG_SECONDS)
    second.result(LONG_SECONDS)
    assert bench.bodies("r0") == [b"first", b"second"]


@pytest.mark.parametrize("error", [None, StoreBroken("a sync failed")])
def test_who_came_meanwhile_is_not_left_waiting(bench: Bench, error: StoreBroken | None) -> None:
    gate = Gate()

    def slow(batch: Sequence[Commit]) -> None:
        gate(batch)
        if error is not None:
            raise error

    bench.store.before = slow
    first = bench.later(lambda: append(bench, bench.tails[0], b"x"))
    assert gate.reached.wait(LONG_SECONDS)
    tickets = [bench.queue(tail, b"x") for tail in bench.tails[1:]]
    others = [bench.later(lambda one=one: bench.committer.wait(one)) for one in tickets]  # type: ignore[misc]
    gate.opened.set()
    for one in (first, *others):
        assert one.exception(LONG_SECONDS) is error
    assert bench.fatal == ([] if error is None else [error])


def test_bad_content_is_refused_and_the_run_goes_on(bench: Bench) -> None:
    bench.store.before = bad(b"bad")
    assert append(bench, bench.tails[0], b"bad").outcome is Outcome.REFUSED
    assert append(bench, bench.tails[0], b"good").outcome is Outcome.COMMITTED
    assert bench.bodies("r0") == [b"good"]
    assert bench.fatal == []


def test_a_damaged_run_is_over(bench: Bench) -> None:
    def damaged(_: object) -> None:
        raise Corrupt("the run's row is damaged", run="r0")

    bench.store.before = damaged
    with pytest.raises(Corrupt):
        append(bench, bench.tails[0], b"x")
    assert bench.tails[0].is_over
    assert append(bench, bench.tails[0], b"y").outcome is Outcome.FENCED
    assert bench.fatal == []


def test_who_has_lost_the_run_is_fenced_once_and_for_all(bench: Bench) -> None:
    tail = bench.tails[0]
    tail.epoch += 1
    assert append(bench, tail, b"x").outcome is Outcome.FENCED
    calls = len(bench.store.batches)
    assert append(bench, tail, b"y").outcome is Outcome.FENCED
    assert len(bench.store.batches) == calls
    assert bench.bodies("r0") == []


def test_whatever_else_fails_ends_everything(bench: Bench) -> None:
    error = OSError("a sync failed")

    def fail(_: object) -> None:
        raise error

    bench.store.before = fail
    with pytest.raises(StoreBroken):
        append(bench, bench.tails[0], b"x")
    bench.store.before = lambda _: None
    for tail in bench.tails:
        with pytest.raises(StoreBroken):
            append(bench, tail, b"later")
    assert bench.fatal == [error]
    assert bench.bodies("r0") == []


def test_a_store_that_is_away_is_waited_for(bench: Bench) -> None:
    left = 2

    def away(_: object) -> None:
        nonlocal left
        if left:
            left -= 1
            raise StoreUnavailable("the disk is full")

    bench.store.before = away
    assert append(bench, bench.tails[0], b"x").outcome is Outcome.COMMITTED
    assert (bench.bodies("r0"), len(bench.pauses)) == ([b"x"], 2)


def test_who_is_interrupted_while_the_store_is_away_does_not_end_everything(bench: Bench) -> None:
    main, is_tried_again, is_back = threading.get_ident(), threading.Event(), threading.Event()
    is_interrupted = threading.Event()

    def away(_: object) -> None:
        if len(bench.store.batches) == 3:
            is_tried_again.set()
        if not is_back.is_set():
            raise StoreUnavailable("the disk is full")

    def raise_once(*_: object) -> None:
        if not is_interrupted.is_set():
            is_interrupted.set()
            raise KeyboardInterrupt

    def interrupt() -> None:
        assert is_tried_again.wait(LONG_SECONDS)
        while not is_interrupted.wait(0.05):  # a signal just before a blocking call does not interrupt it
            signal.pthread_kill(main, signal.SIGINT)

    bench.store.before = away
    before = signal.signal(signal.SIGINT, raise_once)
    try:
        interrupting = bench.later(interrupt)
        with pytest.raises(KeyboardInterrupt):
            append(bench, bench.tails[0], b"x")
        interrupting.result(LONG_SECONDS)
    finally:
        signal.signal(signal.SIGINT, before)
    is_back.set()
    assert append(bench, bench.tails[0], b"y").outcome is Outcome.COMMITTED
    assert bench.fatal == []
    assert bench.bodies("r0") == [b"x", b"y"]


def test_a_committer_that_was_closed_takes_nothing(bench: Bench) -> None:
    bench.committer.close()
    with pytest.raises(StoreUnavailable):
        append(bench, bench.tails[0], b"x")
    assert bench.bodies("r0") == []


@pytest.mark.parametrize(
    ("draft", "blobs"),
    [
        ((Kind.RESULT, "step#0", bytes(INLINE_BYTES + 1)), 1),
        ((Kind.RESULT, "step#0", b"body", [b"blob"]), 1),
        ((Kind.RESULT, "st\u00adep#0", b"text, if not printable"), 0),
    ],
)
def test_what_needs_care_gets_it(bench: Bench, draft: Draft, blobs: int) -> None:
    assert committed(bench, bench.tails[0], draft).outcome is Outcome.COMMITTED
    (record,) = bench.store.load_journal("r0", since=0).records[1:]
    assert (record.step, len(record.blobs)) == (draft[1], blobs)
