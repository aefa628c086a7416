"""What a journal says after cancellations and retries: what is given back, dropped, or counts again."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import Raw
from msgspec.structs import replace

from ninelives.core.journal.replay import (
    SIGNAL_NUMBER,
    Dropped,
    Recorded,
    Replay,
    StepBody,
    read_body,
    signal_number,
    signal_number_in,
    write_body,
    write_signal,
    write_superseded,
)
from ninelives.core.model.run import Kind, Record, StepKind
from ninelives.core.values.fingerprint import Fingerprint

FIRST, OTHER = "01" * 16, "02" * 16
PAID = write_body(Fingerprint(bytes.fromhex(FIRST), b'{"x": 7}'), value=b"1")
CHANGED = write_body(Fingerprint(bytes.fromhex(OTHER), b'{"x": 8}'), value=b"1")
BARE = write_body(None)


def journal(*steps: tuple[Kind, str, bytes]) -> list[Record]:
    """Return records in order, record 0 among them."""
    rest = (
        Record(seq, kind, step, 500 + seq, body, step_kind=StepKind.ACTION)
        for seq, (kind, step, body) in enumerate(steps, 1)
    )
    return [Record(0, Kind.CREATED, "", 500, b""), *rest]


def superseded(*steps: str) -> tuple[Kind, str, bytes]:
    return Kind.SUPERSEDED, "", write_superseded(steps)


def recorded(record: Record) -> Recorded:
    return Recorded(record.seq, record.kind, record.step, read_body(record), record.at_ms, StepKind.ACTION)


def test_a_signal_that_a_cancelled_step_took_goes_to_the_next() -> None:
    records = journal(
        (Kind.RESULT, "#wait#0", write_signal(0, b'"x"')),
        (Kind.WITHDRAWN, "#wait#0", BARE),
        (Kind.WITHDRAWN, "^#wait#0", write_signal(3, b'"y"')),
        (Kind.WITHDRAWN, "#sleep#0", BARE),
        (Kind.RESULT, "#pay#0", PAID),
        (Kind.RESULT, "#wait#1", write_signal(0, b'"x"')),
    )
    _, taken, withdrawn, carried, slept, paid, again = records
    before = Replay(records[:-1])
    assert before.returned == {0: recorded(taken), 3: recorded(carried)}
    assert before.unclaimed() == [recorded(withdrawn), recorded(slept), recorded(paid)]
    assert [before.stands(one) for one in records] == [False, True, True, False, True, True, False]
    after = Replay(records)
    assert after.returned == {3: recorded(carried)}
    assert after.peek("#wait#1") == recorded(again)


def test_a_retry_drops_failures_and_lets_a_result_before_a_cancellation_count() -> None:
    records = journal(
        (Kind.INTENT, "#old#0", PAID),
        (Kind.INTENT, "#pay#0", PAID),
        (Kind.FAILURE, "#pay#0", PAID),
        (Kind.INTENT, "#reaction#0", PAID),
        (Kind.RESULT, "#kept#0", PAID),
        (Kind.WITHDRAWN, "#kept#0", PAID),
        superseded("#pay#0", "#kept#0"),
        (Kind.RESULT, "#pay#1", PAID),
        (Kind.INTENT, "#late#0", PAID),
        (Kind.FAILURE, "#late#0", PAID),
        superseded("#late#0"),
        (Kind.RESULT, "#late#0", CHANGED),
        (Kind.RESULT, "#two#0", PAID),
        (Kind.WITHDRAWN, "#two#0", PAID),
        superseded("#two#0"),
    )
    replay = Replay(records)
    assert replay.dropped == (
        Dropped("#kept#0", None, 7, 7, again=frozenset({"#kept#0"})),
        Dropped("#pay#0", ("pay", FIRST), 3, 7, frozenset({"#old#0", "#pay#0"}), frozenset({"#pay#1"})),
        Dropped("#late#0", ("late", FIRST), 10, 11, frozenset({"#late#0"}), frozenset({"#late#0"})),
        Dropped("#two#0", None, 15, 15, again=frozenset({"#two#0"})),
    )
    assert [one.is_kept for one in replay.dropped] == [True, False, False, True]
    assert replay.last_dropped == [replay.dropped[-1]]
    counted = {found.step: found.seq for found in replay.unclaimed()}
    assert counted == {"#kept#0": 5, "#pay#1": 8, "#late#0": 12, "#two#0": 13}
    assert set(replay.intents) == {"#old#0", "#pay#0", "#reaction#0"}
    assert replay.ids == {"#old#0", "#reaction#0", *counted}


@pytest.mark.parametrize(
    ("outcomes", "dropped"),
    [
        (
            {
                "#fails#0": Kind.FAILURE,
                "#timeout#0": Kind.RESULT,
                "#gone#0": Kind.WITHDRAWN,
                "#child#0": Kind.RESULT,
            },
            {"#fails#0", "#timeout#0"},
        ),
        ({"#gone#0": Kind.WITHDRAWN, "#child#0": Kind.RESULT}, {"#gone#0"}),
        ({"#child#0": Kind.RESULT}, set()),
    ],
)
def test_a_retry_drops_cancellations_only_if_nothing_failed(
    outcomes: dict[str, Kind], dropped: set[str]
) -> None:
    replay = Replay(journal(*((kind, step, BARE) for step, kind in outcomes.items()), superseded(*outcomes)))
    assert {(one.step, one.what, one.until) for one in replay.dropped} == {
        (step, None, len(outcomes) + 1) for step in dropped
    }
    assert replay.unclaimed() == []


@pytest.mark.parametrize(
    ("kind", "body"), [(Kind.RESULT, write_signal(0, b"1")), (Kind.FAILURE, PAID)], ids=["signal", "failure"]
)
def test_only_a_result_that_took_no_signal_counts_again(kind: Kind, body: bytes) -> None:
    replay = Replay(
        journal((kind, "#wait#0", body), (Kind.WITHDRAWN, "#wait#0", BARE), superseded("#wait#0"))
    )
    assert replay.unclaimed() == []
    assert replay.dropped == (Dropped("#wait#0", None, 2, 3),)


def test_what_began_after_a_failure_and_before_the_retry_may_be_a_reaction() -> None:
    dropped = Dropped("#pay#0", None, 3, 7, earlier=frozenset({"#old#0"}))
    found = Recorded(5, Kind.RESULT, "#undo#0", StepBody())
    assert dropped.may_cause(found)
    assert not dropped.may_cause(replace(found, step="#old#0"))
    assert [seq for seq in range(10) if dropped.may_cause(replace(found, seq=seq))] == [4, 5, 6]


@pytest.mark.parametrize("received", [None, b'{"paid":true}'])
def test_a_record_says_which_signal_it_took_and_what_the_code_received(received: bytes | None) -> None:
    body = write_signal(12, b"[1]", received)
    record = Record(1, Kind.RESULT, "#wait#0", 0, body)
    kept: dict[str, Any] = {} if received is None else {"r": Raw(received)}
    assert read_body(record) == StepBody(a={SIGNAL_NUMBER: "12"}, v=Raw(b"[1]"), **kept)
    assert signal_number(recorded(record)) == signal_number_in(record) == 12


def test_a_record_without_a_signal_has_no_number() -> None:
    assert signal_number(Recorded(1, Kind.RESULT, "#pay#0", StepBody())) == -1
    unreadable = b'{"a":{"%b":"x"}}' % SIGNAL_NUMBER.encode()
    for body in (PAID, b"[]", unreadable):
        assert signal_number_in(Record(1, Kind.RESULT, "#pay#0", 0, body)) == -1


def test_a_dropped_wait_is_not_done_again_by_another_wait() -> None:
    dropped = Replay(
        journal(
            (Kind.FAILURE, "#timeout#0", BARE),
            superseded("#timeout#0"),
            (Kind.RESULT, "#wait#0", write_signal(0, b'"x"')),
        )
    ).dropped
    assert [(one.step, one.what, one.again) for one in dropped] == [("#timeout#0", None, frozenset())]
