"""Tickets: answered once, told once, sealed onto the tail."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest

from ninelives.core.errors import BadRecord, Corrupt, InvariantViolation
from ninelives.core.journal import chain
from ninelives.core.model.commit import End, Outcome, Verdict
from ninelives.core.model.run import INLINE_BYTES, Kind, State
from ninelives.core.rules import run_rules as rules
from ninelives.core.values import blobs
from ninelives.engine.commit.ticket import NO_EXTRAS, Extras, Tail, Ticket, commit_of, deliver
from tests.contract.makers import new_item, new_run, reserve

LONG_SECONDS = 30.0
DONE = Verdict("r1", Outcome.COMMITTED)


@pytest.fixture
def tail() -> Tail:
    """Return the tail of a run that was just created."""
    run, _ = rules.created(new_run("r1"), 1, 5)
    return Tail(run)


def ticket(tail: Tail, *bodies: bytes, extras: Extras = NO_EXTRAS, waited_for: bool = False) -> Ticket:
    made = Ticket(tail, extras, None, waited_for=waited_for)
    for body in bodies:
        made.add((Kind.RESULT, "step", body), 7)
    return made


def test_a_tail_begins_where_its_run_ends(tail: Tail) -> None:
    run, (first,) = rules.created(new_run("r1"), 1, 5)
    assert (tail.run, tail.epoch, tail.length, tail.head) == ("r1", 0, 1, first.check)
    assert tail.head == run.head
    assert not tail.is_over


def test_a_ticket_is_answered_once(tail: Tail) -> None:
    one = ticket(tail, b"x")
    assert not one.is_answered
    with pytest.raises(InvariantViolation):
        one.result()
    one.answer(DONE)
    assert one.is_answered
    assert one.result() == DONE
    with pytest.raises(InvariantViolation):
        one.answer(DONE)
    with pytest.raises(InvariantViolation):
        one.fence()
    assert one.result() == DONE


def test_an_error_is_an_answer_too(tail: Tail) -> None:
    one = ticket(tail)
    one.answer(None, Corrupt("damaged"))
    assert one.is_answered
    with pytest.raises(Corrupt):
        one.result()
    with pytest.raises(InvariantViolation):
        one.answer(DONE)


def test_a_fenced_ticket_names_its_run(tail: Tail) -> None:
    one = ticket(tail)
    one.fence()
    assert one.result() == Verdict("r1", Outcome.FENCED)


def test_who_joins_is_let_go_when_it_is_told(tail: Tail) -> None:
    one = ticket(tail, waited_for=True)
    joined, going = threading.Event(), threading.Event()

    def join() -> None:
        going.set()
        one.join()
        joined.set()

    waiting = [threading.Thread(target=join, daemon=True) for _ in range(3)]
    for thread in waiting:
        thread.start()
    assert going.wait(LONG_SECONDS)
    one.answer(DONE)
    assert not joined.is_set()
    one.wake()
    for thread in waiting:
        thread.join(LONG_SECONDS)
        assert not thread.is_alive()
    one.join()


def test_a_ticket_that_nobody_meant_to_wait_for_cannot_be_joined(tail: Tail) -> None:
    one = ticket(tail)
    with pytest.raises(InvariantViolation):
        one.join()
    one.wake()


@pytest.mark.parametrize(
    ("extras", "may_be"),
    [
        (NO_EXTRAS, False),
        (Extras(change=End(State.COMPLETED)), False),
        (Extras(keys=(reserve(),)), True),
        (Extras(opens=(new_item(),)), True),
        (Extras(closes=("i1",)), True),
        (Extras(takes=(1,)), True),
    ],
)
def test_what_others_did_meanwhile_may_refuse_all_but_records_and_changes(
    extras: Extras, *, may_be: bool
) -> None:
    assert extras.may_be_refused is may_be


# Records -----------------------------------------------------------------------------------------


def test_a_body_at_the_limit_stays_and_one_beyond_it_becomes_a_blob(tail: Tail) -> None:
    one = ticket(tail, b"s" * INLINE_BYTES, b"l" * (INLINE_BYTES + 1))
    commit = commit_of([one])
    small, large = commit.records
    assert (small.body, small.blobs) == (b"s" * INLINE_BYTES, ())
    assert (large.body, large.blobs) == (b"", (blobs.digest(b"l" * (INLINE_BYTES + 1)),))
    assert one.spills == [b"l" * (INLINE_BYTES + 1)]


def test_a_body_beyond_every_limit_is_refused(tail: Tail, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blobs, "MAX_BYTES", INLINE_BYTES + 10)
    one = ticket(tail, bytes(INLINE_BYTES + 10))
    with pytest.raises(BadRecord) as caught:
        one.add((Kind.RESULT, "fetch#1", bytes(INLINE_BYTES + 11)), 7)
    assert (caught.value.run, caught.value.step) == ("r1", "fetch#1")
    assert str(INLINE_BYTES + 11) in caught.value.what
    assert len(commit_of([one]).records) == 1


def test_parts_that_are_kept_apart_follow_the_body(tail: Tail) -> None:
    one = ticket(tail)
    one.add((Kind.RESULT, "list#0", b"small", [b"first", b"second"]), 7)
    one.add((Kind.RESULT, "list#1", b"l" * (INLINE_BYTES + 1), (b"first",)), 7)
    small, large = commit_of([one]).records
    assert (small.body, small.blobs) == (b"small", (blobs.digest(b"first"), blobs.digest(b"second")))
    assert large.body == b""
    assert large.blobs == (blobs.digest(b"l" * (INLINE_BYTES + 1)), blobs.digest(b"first"))
    assert set(one.spills) == {b"first", b"second", b"l" * (INLINE_BYTES + 1)}


@pytest.mark.parametrize("part", ["text", None, 7])
def test_parts_of_other_types_are_refused_too(tail: Tail, part: object) -> None:
    one = ticket(tail)
    with pytest.raises(BadRecord):
        one.add((Kind.RESULT, "list#0", b"", [b"good", part]), 7)  # type: ignore[arg-type]
    assert commit_of([one]).records == ()
    assert one.spills == []


class Name(str):
    """Not quite a str."""

    __slots__ = ()


@pytest.mark.parametrize(
    "draft",
    [("result", "s", b""), (Kind.RESULT, Name("s"), b""), (Kind.RESULT, "s", "x"), (Kind.RESULT, "s", None)],
)
def test_other_types_are_refused_and_leave_no_trace(tail: Tail, draft: tuple[Kind, str, bytes]) -> None:
    one = ticket(tail)
    with pytest.raises(BadRecord, match=r"\(Kind, str, bytes\)") as caught:
        one.add(draft, 7)
    assert caught.value.remedy
    assert commit_of([one]).records == ()


def test_tickets_of_one_run_are_sealed_as_one_chain(tail: Tail) -> None:
    extras = Extras(keys=(reserve(),), change=End(State.FAILED))
    group = [ticket(tail, b"1"), ticket(tail, b"2", b"3"), ticket(tail, b"4", extras=extras)]
    commit = commit_of(group)
    assert (commit.run, commit.epoch, commit.length, commit.head) == ("r1", 0, 1, tail.head)
    assert [record.body for record in commit.records] == [b"1", b"2", b"3", b"4"]
    assert [record.seq for record in commit.records] == [1, 2, 3, 4]
    assert {record.at_ms for record in commit.records} == {7}
    assert (commit.keys, commit.change) == (extras.keys, extras.change)
    chain.verify("r1", tail.head, 1, commit.records, length=5, head=commit.new_head)


def test_sealing_moves_no_tail_and_can_be_done_again(tail: Tail) -> None:
    group = [ticket(tail, b"1"), ticket(tail, b"2")]
    before = (tail.length, tail.head)
    assert commit_of(group) == commit_of(group)
    assert (tail.length, tail.head) == before
    assert commit_of(group[1:]).records[0].seq == 1


def test_all_that_a_commit_may_carry_is_carried(tail: Tail) -> None:
    extras = Extras(
        keys=(reserve(),), opens=(new_item(),), closes=("i2",), takes=(3,), change=End(State.COMPLETED)
    )
    commit = commit_of([ticket(tail, b"x", extras=extras)])
    carried = (commit.keys, commit.opens, commit.closes, commit.takes, commit.change)
    assert carried == (extras.keys, extras.opens, extras.closes, extras.takes, extras.change)


# Delivery ----------------------------------------------------------------------------------------


class Letterbox:
    """A home that keeps what comes."""

    def __init__(self) -> None:
        self.came: list[list[Ticket]] = []

    def deliver(self, tickets: Sequence[Ticket]) -> None:
        """Keep them."""
        self.came.append(list(tickets))


def test_each_home_gets_its_tickets_once_and_in_order(tail: Tail) -> None:
    first, second = Letterbox(), Letterbox()
    homes = [first, second, None, first, second, first]
    tickets = [Ticket(tail, NO_EXTRAS, home, waited_for=home is None) for home in homes]
    for one in tickets:
        one.answer(DONE)
    deliver(tickets)
    assert first.came == [[tickets[0], tickets[3], tickets[5]]]
    assert second.came == [[tickets[1], tickets[4]]]
    tickets[2].join()


def test_nothing_is_delivered_to_nobody() -> None:
    deliver([])
