"""The inbox: what is asked, who may answer, and what an answer sets going."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from ninelives.core.errors import BadName, BadRecord, NotSerializable, StaleAnswer
from ninelives.core.model.commit import Commit, End, Escalate, Outcome, Park, Verdict
from ninelives.core.model.inbox import Item, ItemKind, ItemState, NewItem
from ninelives.core.model.run import INLINE_BYTES, State
from tests.contract.benches import Bench
from tests.contract.makers import append, new_item


def answer(
    bench: Bench, item: str = "i1", digest: bytes = b"d", body: bytes = b"yes", by: str = "ada"
) -> Item:
    return bench.store.answer_item(item, digest=digest, body=body, by=by)


def listed(bench: Bench, **filters: object) -> list[str]:
    return [item.id for item in bench.store.list_inbox(**filters)]  # type: ignore[arg-type]


def refused(bench: Bench, wrong: Commit, outcome: Outcome) -> Verdict:
    before = bench.snapshot()
    (verdict,) = bench.store.commit([wrong])
    assert verdict.outcome is outcome
    assert bench.snapshot() == before
    return verdict


# Opening and closing -----------------------------------------------------------------------------


def test_an_opened_item_waits_in_the_inbox(bench: Bench) -> None:
    bench.write(bench.running(), b"x", opens=[new_item(to="ops", deadline_ms=99, kind=ItemKind.DOUBT)])
    assert bench.store.list_inbox() == [
        Item(
            id="i1",
            run="r1",
            kind=ItemKind.DOUBT,
            step="refund#0",
            digest=b"d",
            body=b"?",
            to="ops",
            deadline_ms=99,
            opened_ms=bench.clock.now_ms(),
        )
    ]


@pytest.mark.parametrize("state", ItemState)
def test_opening_the_same_item_again_is_fine_and_changes_nothing(bench: Bench, state: ItemState) -> None:
    run = bench.write(bench.running(), b"x", opens=[new_item()])
    if state is ItemState.CLOSED:
        run = bench.write(run, b"x", closes=["i1"])
    if state is ItemState.ANSWERED:
        answer(bench)
    before = bench.store.list_inbox(answered=True)
    bench.clock.advance(5)
    bench.write(run, b"y", opens=[new_item()])
    assert bench.store.list_inbox(answered=True) == before
    assert before[0].state is state


@pytest.mark.parametrize(
    "other",
    [
        new_item(digest=b"other"),
        new_item(body=b"other"),
        new_item(step="other"),
        new_item(to="other"),
        new_item(deadline_ms=1),
        new_item(kind=ItemKind.QUESTION),
    ],
)
def test_an_item_id_with_other_content_is_refused(bench: Bench, other: NewItem) -> None:
    run = bench.write(bench.running(), b"x", opens=[new_item()])
    verdict = refused(bench, append(run, b"y", opens=[other]), Outcome.REFUSED)
    assert isinstance(verdict.error, BadRecord)


def test_an_item_id_of_another_run_is_refused(bench: Bench) -> None:
    bench.write(bench.running("other"), b"x", opens=[new_item()])
    refused(bench, append(bench.running(), b"y", opens=[new_item()]), Outcome.REFUSED)


def test_closing_an_open_item_takes_it_out_of_the_inbox(bench: Bench) -> None:
    run = bench.write(bench.running(), b"x", opens=[new_item(), new_item("i2")])
    bench.write(run, b"y", closes=["i1"])
    assert listed(bench) == ["i2"]
    assert listed(bench, answered=True) == ["i1", "i2"]


def test_closing_what_is_not_open_is_stale(bench: Bench) -> None:
    bench.write(bench.running("other"), b"x", opens=[new_item("theirs")])
    run = bench.write(bench.running(), b"x", opens=[new_item(), new_item("answered"), new_item("closed")])
    run = bench.write(run, b"y", closes=["closed"])
    answer(bench, "answered")
    for closes in (["answered"], ["closed"], ["theirs"], ["nobody's"], ["i1", "i1"], ["i1", "answered"]):
        refused(bench, append(run, b"z", closes=closes, change=End(State.COMPLETED)), Outcome.STALE)


def test_one_commit_may_close_one_item_and_open_another(bench: Bench) -> None:
    run = bench.write(bench.running(), b"x", opens=[new_item()])
    bench.write(run, b"y", closes=["i1"], opens=[new_item("i2")])
    assert listed(bench) == ["i2"]


@pytest.mark.parametrize("state", [State.COMPLETED, State.FAILED, State.CANCELLED])
def test_the_end_of_a_run_closes_its_open_items(bench: Bench, state: State) -> None:
    bench.write(bench.running("other"), b"x", opens=[new_item("theirs")])
    run = bench.write(bench.running(), b"x", opens=[new_item(), new_item("answered")])
    answer(bench, "answered")
    bench.write(run, b"y", opens=[new_item("last")], change=End(state))  # type: ignore[arg-type]
    states = {item.id: item.state.value for item in bench.store.list_inbox(answered=True)}
    assert states == {"theirs": "open", "i1": "closed", "answered": "answered", "last": "closed"}


@pytest.mark.parametrize("name", ["", "a\nb", "a\0b", "\ud800", "e\u0301", "x" * 256])
def test_an_unusable_item_id_is_refused(bench: Bench, name: str) -> None:
    verdict = refused(bench, append(bench.running(), b"x", opens=[new_item(name)]), Outcome.REFUSED)
    assert isinstance(verdict.error, BadName)


@pytest.mark.parametrize(
    "wrong",
    [
        new_item(body=b"x" * (INLINE_BYTES + 1)),
        new_item(step="\ud800"),
        new_item(to="a\0b"),
        new_item(deadline_ms=2**63),
    ],
    ids=["size", "step", "to", "deadline"],
)
def test_an_item_that_cannot_be_kept_is_refused(bench: Bench, wrong: NewItem) -> None:
    verdict = refused(bench, append(bench.running(), b"x", opens=[wrong]), Outcome.REFUSED)
    assert isinstance(verdict.error, BadRecord)


# Listing -----------------------------------------------------------------------------------------


def test_items_are_listed_oldest_first_by_run_and_limit(bench: Bench) -> None:
    bench.write(bench.running("a"), b"x", opens=[new_item("z"), new_item("y")])
    bench.write(bench.running("b"), b"x", opens=[new_item("x")])
    assert listed(bench) == ["z", "y", "x"]
    assert listed(bench, limit=2) == ["z", "y"]
    assert listed(bench, run="b") == ["x"]
    assert listed(bench, run="b", answered=True, limit=5) == ["x"]
    assert listed(bench, run="nobody") == []
    assert listed(bench, item="y") == ["y"]
    assert listed(bench, item="y", run="b") == []
    assert listed(bench, item="nobody", answered=True) == []
    assert listed(bench, item="y", limit=0) == []
    assert listed(bench, limit=0) == []
    assert listed(bench, limit=-1) == []
    assert listed(bench, run="a", limit=-1) == []


def test_answered_items_are_listed_only_when_asked_for(bench: Bench) -> None:
    bench.write(bench.running(), b"x", opens=[new_item("a"), new_item("b")])
    answer(bench, "a")
    assert listed(bench) == ["b"]
    assert listed(bench, run="r1") == ["b"]
    assert listed(bench, answered=True) == ["a", "b"]
    assert listed(bench, item="a") == []
    assert listed(bench, item="a", answered=True) == ["a"]


# Answering ---------------------------------------------------------------------------------------


def test_an_answer_is_kept_with_who_gave_it_and_wakes_the_run(bench: Bench) -> None:
    bench.write(bench.running(), b"x", opens=[new_item()], change=Park(None, "approval", 0))
    bench.clock.advance(5)
    item = answer(bench)
    assert (item.state, item.answer, item.by, item.answered_ms) == (
        "answered",
        b"yes",
        "ada",
        bench.clock.now_ms(),
    )
    assert bench.store.load_journal("r1").items == (item,)
    run = bench.row("r1")
    assert (run.state, run.news, run.due_ms) == ("checkpointed", 1, bench.clock.now_ms())


def test_an_escalated_run_goes_on(bench: Bench) -> None:
    bench.write(bench.running(), b"x", opens=[new_item()], change=Escalate("doubt", 0))
    answer(bench)
    run = bench.row("r1")
    assert (run.state, run.waits, run.due_ms, run.news) == ("checkpointed", "", bench.clock.now_ms(), 1)
    bench.claim("r1")


def test_an_answer_to_a_running_run_is_news(bench: Bench) -> None:
    bench.write(bench.running(), b"x", opens=[new_item()])
    answer(bench)
    assert (bench.row("r1").state, bench.row("r1").news) == ("running", 1)


def test_the_same_answer_again_changes_nothing(bench: Bench) -> None:
    bench.write(bench.running(), b"x", opens=[new_item()])
    first = answer(bench)
    before = bench.snapshot()
    bench.clock.advance(5)
    assert answer(bench) == first
    assert bench.snapshot() == before


def test_answers_that_come_too_late_or_to_something_else_are_stale(bench: Bench) -> None:
    run = bench.write(bench.running(), b"x", opens=[new_item(), new_item("open"), new_item("closed")])
    bench.write(run, b"y", closes=["closed"])
    answer(bench)
    before = bench.snapshot()
    for wrong in (
        {"item": "nobody's"},
        {"item": "\ud800"},
        {"item": "closed"},
        {"item": "open", "digest": b"other"},
        {"by": "bob"},
        {"body": b"no"},
        {"digest": b"other"},
    ):
        with pytest.raises(StaleAnswer):
            answer(bench, **wrong)
    assert bench.snapshot() == before


def test_an_item_of_an_ended_run_takes_no_answer(bench: Bench) -> None:
    run = bench.write(bench.running(), b"x", opens=[new_item()], change=End(State.FAILED))
    with pytest.raises(StaleAnswer):
        answer(bench)
    assert bench.row("r1") == run


def test_unusable_answers_are_refused(bench: Bench) -> None:
    bench.write(bench.running(), b"x", opens=[new_item()])
    before = bench.snapshot()
    for name in ("", "a\nb", "\ud800", "x" * 256):
        with pytest.raises(BadName):
            answer(bench, by=name)
    with pytest.raises(NotSerializable):
        answer(bench, body=b"x" * (INLINE_BYTES + 1))
    assert bench.snapshot() == before


def test_what_was_answered_between_look_and_park_is_not_missed(bench: Bench) -> None:
    run = bench.write(bench.running(), b"x", opens=[new_item()])
    answer(bench)
    parked = bench.write(replace(run, news=0), b"y", change=Escalate("doubt", run.news))
    assert (parked.state, parked.due_ms) == ("checkpointed", bench.clock.now_ms())
