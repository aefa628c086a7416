"""The settlement of non-resumable actions, explored in every order; planted bugs are found."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from ninelives.core.errors import Corrupt
from ninelives.core.journal import settlement
from ninelives.core.journal.settlement import Happened, NotHappened, Ruling, Standing, StartBody, Unknown
from ninelives.core.model.run import Kind, Record
from ninelives.core.model.session import Fate
from ninelives.core.values.fingerprint import Fingerprint
from tests.unit.settlement_model import Broken, Rules, explore

ASKED = Fingerprint(b"\x01" * 16, b'{"cents": 7}')
START = StartBody(n=0, w="s", l=60_000, b=True)


@pytest.mark.parametrize("bounded", [True, False], ids=["async", "plain"])
def test_no_order_of_events_breaks_the_invariants(bounded: bool) -> None:
    assert explore(Rules(), bounded=bounded) > 1_000


def _ripe_at_once(start: StartBody, fate: Fate, since: int, after: int) -> int | None:
    return since


def _ripe_though_it_lives(start: StartBody, fate: Fate, since: int, after: int) -> int | None:
    return settlement.ripe_ms(start, Fate.GONE if fate is Fate.LIVES else fate, since, after)


def _ripe_without_its_limit(start: StartBody, fate: Fate, since: int, after: int) -> int | None:
    return settlement.ripe_ms(replace(start, l=0), fate, since, after)


def _ripe_though_a_thread_goes_on(start: StartBody, fate: Fate, since: int, after: int) -> int | None:
    return settlement.ripe_ms(replace(start, b=True), fate, since, after)


def _believes_at_once(answer: object, asked: int, ripe: int | None, give_up: int) -> Ruling:
    if isinstance(answer, NotHappened):
        return Ruling.VOID
    return settlement.rule(answer, asked, ripe, give_up)


def _takes_unknown_for_no(answer: object, asked: int, ripe: int | None, give_up: int) -> Ruling:
    told = NotHappened() if isinstance(answer, Unknown) else answer
    return settlement.rule(told, asked, ripe, give_up)


def _takes_silence_for_no(answer: object, asked: int, ripe: int | None, give_up: int) -> Ruling:
    return settlement.rule(NotHappened() if answer is None else answer, asked, ripe, give_up)


def _takes_silence_for_yes(answer: object, asked: int, ripe: int | None, give_up: int) -> Ruling:
    return settlement.rule(Happened(None) if answer is None else answer, asked, ripe, give_up)


def _never_asks_a_person(answer: object, asked: int, ripe: int | None, give_up: int) -> Ruling:
    ruling = settlement.rule(answer, asked, ripe, give_up)
    return Ruling.WAIT if ruling is Ruling.PERSON else ruling


def _forgets_the_start(now: Standing, kind: Kind, body: StartBody) -> Standing:
    after = settlement.advance(now, kind, body)
    return replace(after, start=None) if kind is Kind.DOUBT else after


def _numbers_anew(now: Standing, kind: Kind, body: StartBody) -> Standing:
    return replace(settlement.advance(now, kind, body), next=0)


PLANTED: dict[str, dict[str, Any]] = {
    "settle_after is not waited for": {"ripe_ms": _ripe_at_once},
    "a living process is taken for dead": {"ripe_ms": _ripe_though_it_lives},
    "the body's time limit is not waited for": {"ripe_ms": _ripe_without_its_limit},
    "a thread is taken to end with its limit": {"ripe_ms": _ripe_though_a_thread_goes_on},
    "not happened is believed at once": {"rule": _believes_at_once},
    "unknown is taken for not happened": {"rule": _takes_unknown_for_no},
    "a failed probe is taken for not happened": {"rule": _takes_silence_for_no},
    "a failed probe is taken for happened": {"rule": _takes_silence_for_yes},
    "nobody asks a person": {"rule": _never_asks_a_person},
    "a doubt forgets its start": {"advance": _forgets_the_start},
    "starts are not numbered": {"advance": _numbers_anew},
    "an open start does not stop another": {"may_start": lambda _: True},
    "any error proves that nothing was done": {"proves_not_done": lambda _: True},
    "an expired lease proves death": {"is_over": lambda fate: fate is not Fate.LIVES},
    "a living process counts as over": {"is_over": lambda _: True},
}


@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_bug_is_found(bug: str) -> None:
    rules = Rules(**PLANTED[bug])
    with pytest.raises(Broken):
        _ = explore(rules, bounded=True) + explore(rules, bounded=False)


def test_not_happened_counts_only_after_the_start_can_no_longer_take_effect() -> None:
    assert settlement.ripe_ms(START, Fate.GONE, 1_000, 500) == 1_500
    assert settlement.ripe_ms(START, Fate.UNKNOWN, 1_000, 500) == 61_500
    assert settlement.ripe_ms(START, Fate.LIVES, 1_000, 500) is None
    assert settlement.ripe_ms(replace(START, b=False), Fate.UNKNOWN, 1_000, 500) is None
    assert settlement.rule(NotHappened(), 1_499, 1_500, 0) is Ruling.WAIT
    assert settlement.rule(NotHappened(), 1_500, 1_500, 0) is Ruling.VOID
    assert settlement.rule(NotHappened(), 9_000, None, 9_001) is Ruling.WAIT
    assert settlement.rule(NotHappened(), 9_001, None, 9_001) is Ruling.PERSON


def test_happened_is_believed_at_any_time() -> None:
    assert settlement.rule(Happened("x"), 0, None, 1_000) is Ruling.HAPPENED
    assert settlement.rule(Happened("x"), 0, 5_000, 1_000) is Ruling.HAPPENED


def test_what_stays_unknown_goes_to_a_person() -> None:
    assert settlement.rule(Unknown("?"), 2_000, 1_500, 0) is Ruling.PERSON
    assert settlement.rule(None, 2_000, 1_500, 0) is Ruling.PERSON
    assert settlement.rule(Unknown("?"), 1_000, 1_500, 0) is Ruling.WAIT


def _of_start(kind: Kind, number: int, **known: Any) -> Record:
    return Record(number, kind, "#refund#0", 0, settlement.write_start(ASKED, n=number, **known))


def _body(number: int, **known: Any) -> StartBody:
    return StartBody(f="01" * 16, a={"cents": "7"}, n=number, **known)


def test_where_an_action_stands_is_read_from_its_records_in_order() -> None:
    intent, doubt = _of_start(Kind.INTENT, 0, w="s"), _of_start(Kind.DOUBT, 0, why="killed", t=5)
    voided = _of_start(Kind.VOIDED, 0, t=9)
    started, doubted = _body(0, w="s"), _body(0, why="killed", t=5)
    assert settlement.standing([]) == Standing(None, None, 0, 0)
    assert settlement.standing([intent]) == Standing(started, None, 1)
    assert settlement.standing([intent, doubt]) == Standing(started, doubted, 1)
    assert settlement.standing([intent, doubt, voided]) == Standing(None, None, 1, 9)
    again = _of_start(Kind.INTENT, 1)
    assert settlement.standing([intent, doubt, voided, again]) == Standing(_body(1), None, 2)
    assert settlement.standing([intent, _of_start(Kind.RESULT, 5)]) == Standing(started, None, 1)


def test_numbers_never_go_back_whatever_a_record_says() -> None:
    later = settlement.standing([_of_start(Kind.INTENT, 4)])
    for kind in (Kind.DOUBT, Kind.VOIDED):
        assert settlement.advance(later, kind, _body(1)).next == 5
        assert settlement.advance(later, kind, _body(7)).next == 8


def test_a_doubt_taken_over_with_its_key_is_the_start_too() -> None:
    taken = _body(3, k="refund:7")
    assert settlement.standing([_of_start(Kind.DOUBT, 3, k="refund:7")]) == Standing(taken, taken, 4)


@pytest.mark.parametrize(
    ("doubted_in", "now_ms", "believed"),
    [("boot", 5_000, 1_300), ("boot", 1_200, 1_200), ("boot before", 5_000, 5_000), ("", 5_000, 5_000)],
)
def test_a_clock_set_forward_within_one_boot_is_not_believed(
    doubted_in: str, now_ms: int, believed: int
) -> None:
    doubt = StartBody(t=1_000, boot=doubted_in, boot_ms=100)
    assert settlement.believed_ms(doubt, now_ms, "boot", 400) == believed


def test_a_start_is_read_as_it_was_written() -> None:
    assert settlement.read_body_of_start(settlement.write_start(ASKED, n=2, w="s")) == _body(2, w="s")


def test_a_record_that_is_none_of_a_start_is_corrupt() -> None:
    with pytest.raises(Corrupt, match="record 7 is no record of a start: Expected") as caught:
        settlement.standing([Record(7, Kind.INTENT, "#refund#0", 0, b'{"n":"x"}')])
    assert caught.value.step == "#refund#0"
