"""What a journal says by the identity of steps: outcomes once, in order, and what no longer counts."""

from __future__ import annotations

import msgspec
import pytest
from msgspec import Raw

from ninelives.core.errors import Corrupt
from ninelives.core.journal.fork_origin import Origin, write_origin
from ninelives.core.journal.matching import changed_arguments, changed_start
from ninelives.core.journal.output import write_output
from ninelives.core.journal.replay import (
    Attempt,
    Recorded,
    Replay,
    StepBody,
    read_body,
    read_step_body,
    read_superseded,
    write_body,
    write_superseded,
)
from ninelives.core.model.run import Kind, Record
from ninelives.core.values.fingerprint import Fingerprint, preview
from ninelives.core.values.token_usage import Usage

ASKED = Fingerprint(b"\x01" * 16, b'{"x": 7, "who": "me"}')


def journal(*steps: tuple[Kind, str] | tuple[Kind, str, bytes]) -> list[Record]:
    """Return records in order, record 0 among them."""
    first = Record(0, Kind.CREATED, "", 500, b"")
    rest = [
        Record(seq, one[0], one[1], 500 + seq, one[2] if len(one) > 2 else write_body(ASKED, value=b"1"))
        for seq, one in enumerate(steps, 1)
    ]
    return [first, *rest]


def test_an_outcome_is_taken_once_and_counted() -> None:
    replay = Replay(journal((Kind.RESULT, "a"), (Kind.FAILURE, "b"), (Kind.SIGNAL, "c")))
    assert (replay.left, replay.began_ms) == (3, 500)
    found = replay.take("a")
    assert found is not None
    assert (found.seq, found.kind, found.step, found.at_ms) == (1, Kind.RESULT, "a", 501)
    assert bytes(found.body.v or b"") == b"1"
    assert replay.take("a") is None
    assert replay.left == 2
    assert replay.take("b") is not None
    assert replay.take("c") is not None
    assert replay.left == 0


def test_an_outcome_is_taken_only_with_the_arguments_that_were_recorded() -> None:
    replay = Replay(journal((Kind.RESULT, "a")))
    found = replay.peek("a")
    assert found is not None
    assert replay.unclaimed() == [found]
    assert replay.take_same("a", "02" * 16) is None
    assert replay.take_same("b", "01" * 16) is None
    assert replay.left == 1
    assert replay.take_same("a", "01" * 16) is found
    assert (replay.left, replay.peek("a"), replay.unclaimed()) == (0, None, [])


def test_what_was_started_or_has_an_outcome_keeps_its_id() -> None:
    identifying = (
        Kind.INTENT,
        Kind.DOUBT,
        Kind.VOIDED,
        Kind.RESULT,
        Kind.FAILURE,
        Kind.WITHDRAWN,
        Kind.SIGNAL,
    )
    others = (Kind.LOG, Kind.PROGRESS, Kind.HELD, Kind.RELEASED, Kind.ANSWER, Kind.ASKED, Kind.WAITING)
    undos = ((Kind.UNDO, "undo", b"1"), (Kind.UNDO, "^undo", b"2"))
    replay = Replay(journal(*((kind, str(kind)) for kind in (*identifying, *others)), *undos))
    assert replay.ids == {*map(str, identifying), "undo"}
    assert replay.undos == {"undo": b"1", "^undo": b"2"}
    assert replay.undo_ids == {"undo", "^undo"}


def test_an_empty_journal_says_nothing() -> None:
    replay = Replay([])
    assert (replay.returned, replay.dropped, replay.ids) == ({}, (), set())
    assert (replay.left, replay.began_ms, replay.earliest(), replay.take("a")) == (0, 0, None, None)


def test_the_earliest_is_the_first_that_nobody_took() -> None:
    replay = Replay(journal((Kind.RESULT, "a"), (Kind.RESULT, "b"), (Kind.RESULT, "c")))

    def earliest() -> str | None:
        found = replay.earliest()
        return found.step if found is not None else None

    assert earliest() == "a"
    assert earliest() == "a"
    replay.take("b")
    assert earliest() == "a"
    replay.take("a")
    assert earliest() == "c"
    replay.pass_by()
    assert earliest() is None
    replay.take("c")
    assert earliest() is None


def test_none_is_skipped_however_many_were_taken_or_given_up() -> None:
    replay = Replay(journal(*((Kind.RESULT, step) for step in "abcdef")))
    for step in "bd":
        replay.take(step)
    order = []
    while (found := replay.earliest()) is not None:
        order.append(found.step)
        if found.step == "c":
            replay.take("c")
        else:
            replay.pass_by()
    assert order == ["a", "c", "e", "f"]
    assert replay.left == 3


def test_the_earliest_is_by_the_journal_s_order_not_by_the_first_try() -> None:
    superseding = (Kind.SUPERSEDED, "", write_superseded(["a"]))
    replay = Replay(journal((Kind.FAILURE, "a"), superseding, (Kind.RESULT, "b"), (Kind.RESULT, "a")))
    found = replay.earliest()
    assert found is not None
    assert (found.step, found.seq) == ("b", 3)


def test_what_a_step_emitted_stands_until_it_is_withdrawn() -> None:
    replay = Replay(
        journal(
            (Kind.OUTPUT, "a", write_output(0, 1, [b"1"])),
            (Kind.OUTPUT, "b", write_output(0, 1, [b"1"])),
            (Kind.OUTPUT, "b", write_output(0, 2, [], retracts=True)),
            (Kind.OUTPUT, "own", write_output(0, 0, [b"1"])),
        )
    )
    assert replay.emitted == {"a": (1, True), "b": (2, False)}
    assert [replay.knows_line(step) for step in ("a", "b", "own")] == [False, False, True]


def test_an_intent_stands_until_its_outcome() -> None:
    replay = Replay(journal((Kind.INTENT, "a"), (Kind.INTENT, "b"), (Kind.RESULT, "a")))
    assert set(replay.intents) == {"b"}
    assert [one.seq for one in replay.starts("b")] == [2]
    assert replay.starts("a") == []


def test_doubts_stand_until_a_result_and_are_told_in_order() -> None:
    start = write_body(ASKED)
    replay = Replay(
        journal(
            (Kind.INTENT, "a", start),
            (Kind.VOIDED, "a", start),
            (Kind.INTENT, "a", start),
            (Kind.DOUBT, "a", start),
            (Kind.DOUBT, "b", start),
            (Kind.RESULT, "b"),
            (Kind.RESULT, "never in doubt"),
            (Kind.DOUBT, "c", start),
            (Kind.FAILURE, "c"),
        )
    )
    assert [one.seq for one in replay.starts("a")] == [2, 3, 4]
    assert replay.starts("b") == []
    assert [one.seq for one in replay.starts("c")] == [8]
    assert set(replay.doubts) == {"a", "c"}


def test_what_is_superseded_is_asked_for_anew_and_was_started_all_the_same() -> None:
    replay = Replay(
        journal(
            (Kind.INTENT, "a"),
            (Kind.FAILURE, "a"),
            (Kind.INTENT, "b"),
            (Kind.RESULT, "b"),
            (Kind.SUPERSEDED, "", write_superseded(["a", "never"])),
            (Kind.INTENT, "c"),
        )
    )
    assert replay.take("a") is None
    assert replay.take("b") is not None
    assert {step: one.seq for step, one in replay.intents.items()} == {"a": 1, "c": 6}
    assert replay.times_superseded("a") == 1
    assert replay.times_superseded("b") == 0
    assert not replay.counts(replay.intents["a"])
    assert replay.counts(replay.intents["c"])


def test_a_step_that_was_begun_again_after_its_chance_counts() -> None:
    replay = Replay(
        journal(
            (Kind.INTENT, "a"),
            (Kind.FAILURE, "a"),
            (Kind.SUPERSEDED, "", write_superseded(["a"])),
            (Kind.INTENT, "a"),
        )
    )
    assert replay.intents["a"].seq == 4
    assert replay.counts(replay.intents["a"])
    superseding = Record(3, Kind.INTENT, "a", 0, b"")
    assert not replay.counts(superseding)


def test_only_the_outcome_that_counts_is_current() -> None:
    records = journal((Kind.FAILURE, "a"), (Kind.SUPERSEDED, "", write_superseded(["a"])), (Kind.RESULT, "a"))
    replay = Replay(records)
    assert [replay.is_current(one) for one in records] == [False, False, False, True]


def test_taking_goes_through_the_prefix_of_a_fork() -> None:
    origin = write_origin(Origin("other", 0, "b"))
    replay = Replay(journal((Kind.RESULT, "a"), (Kind.FORKED, "", origin), (Kind.RESULT, "b")))
    assert replay.passage is not None
    assert replay.passage.here == Origin("other", 0, "b")
    replay.take("b")
    assert replay.passage.here is not None
    replay.take("a")
    assert replay.passage.here is None


def test_lines_and_what_is_kept_are_known() -> None:
    replay = Replay(
        journal((Kind.LOG, "l"), (Kind.PROGRESS, "p"), (Kind.HELD, "h"), (Kind.UNDO, "u"), (Kind.ANSWER, "q"))
    )
    assert [replay.knows_line(step) for step in ("l", "p", "h", "u", "q", "x")] == [True] * 4 + [False] * 2
    assert [one.step for one in replay.kept] == ["h", "u"]
    assert [one.step for one in replay.answers] == ["q"]
    assert not replay.is_undoing
    assert Replay(journal((Kind.UNDOING, ""))).is_undoing


def test_a_body_that_is_none_is_told_with_its_place() -> None:
    with pytest.raises(Corrupt) as caught:
        read_body(Record(4, Kind.RESULT, "#pay#0", 0, b"[]"))
    assert caught.value.what.startswith("record 4 is not a step's record: ")
    assert caught.value.step == "#pay#0"
    assert caught.value.remedy == "It was written by another version, or by hand"
    with pytest.raises(Corrupt, match=r"^record 4 does not say what it supersedes: Expected"):
        read_superseded(Record(4, Kind.SUPERSEDED, "", 0, b"[]"))
    assert read_superseded(Record(4, Kind.SUPERSEDED, "", 0, write_superseded(["a"]))) == ("a",)


@pytest.mark.parametrize(
    ("value", "error"), [(b"1", None), (None, b'{"type":"ValueError"}'), (None, None)], ids=str
)
def test_a_body_says_arguments_and_outcome(value: bytes | None, error: bytes | None) -> None:
    body = read_body(Record(1, Kind.RESULT, "a", 0, write_body(ASKED, value=value, error=error)))
    assert body.f == "01" * 16
    assert body.a == {"x": "7", "who": '"me"'}
    assert (bytes(body.v) if body.v else None) == value
    assert (bytes(body.e) if body.e else None) == error
    bare = Fingerprint(b"\x02" * 16, b"{}")
    assert write_body(bare, value=b"1") == b'{"f":"%b","v":1}' % (b"02" * 16)
    assert write_body(None) == b"{}"
    assert write_body(None, value=b"1") == b'{"v":1}'


@pytest.mark.parametrize("usage", [None, Usage(3, 4, "model")], ids=["free", "paid"])
@pytest.mark.parametrize("attempts", [(), (Attempt(1, 2, "refused"),)], ids=["first", "second"])
def test_a_body_keeps_failed_attempts_and_usage(attempts: tuple[Attempt, ...], usage: Usage | None) -> None:
    written = write_body(ASKED, value=b"1", attempts=attempts, usage=usage)
    assert read_step_body(written) == StepBody(
        f="01" * 16, a={"x": "7", "who": '"me"'}, v=Raw(b"1"), attempts=attempts, usage=usage
    )


def test_long_arguments_are_shown_by_their_beginning() -> None:
    exact, long = "x" * 58, "y" * 70
    shown = preview(msgspec.json.encode({"exact": exact, "long": long}))
    assert shown == {"exact": f'"{exact}"', "long": '"' + "y" * 59 + "… (72)"}


def _recorded(fingerprint: str, **arguments: str) -> Recorded:
    return Recorded(3, Kind.RESULT, "#pay#0", StepBody(f=fingerprint, a=arguments))


def test_other_arguments_are_told_one_by_one() -> None:
    recorded = _recorded("ff" * 16, x="8", gone="1", who='"me"')
    told = changed_arguments(recorded, ASKED, run="r1", where="agent.py:7")
    assert told.what == (
        "the code at agent.py:7 calls this step with other arguments than were recorded: "
        "gone: 1 → (default); x: 8 → 7"
    )
    assert (told.where, told.difference) == ("agent.py:7", "gone: 1 → (default); x: 8 → 7")
    assert (told.run, told.step) == ("r1", "#pay#0")
    assert told.remedy == (
        'Nothing was executed. If it does not matter, ignore=["gone","x"] helps runs that start later: '
        "this one has it on record; if this call was inserted before the recorded one, write "
        '`if nl.patched("pay"):` around it; if the record can be dropped and the step done again, '
        'declare @nl.agent(forgets=["pay"]); else restore the old code'
    )


def test_differences_beyond_what_is_shown_are_told_as_such() -> None:
    told = changed_arguments(_recorded("ff" * 16, x="7", who='"me"'), ASKED, run="r1", where="a.py:1")
    assert told.what.endswith("recorded: they differ beyond the previews")


def test_a_start_with_other_arguments_is_told() -> None:
    told = changed_start(StepBody(f="", a={"x": "8", "gone": "1"}), ASKED, run="r", step="s", where="a.py:1")
    assert told.what == (
        "the code at a.py:1 calls this step with other arguments than it was started with, "
        'and the fate of that start is unknown: gone: 1 → (default); who: (default) → "me"; x: 8 → 7'
    )
    assert (told.where, told.run, told.step) == ("a.py:1", "r", "s")
    assert told.difference == 'gone: 1 → (default); who: (default) → "me"; x: 8 → 7'
    assert told.remedy == (
        'Nothing was executed. If it does not matter, ignore=["gone","x"] helps runs that start later: '
        "this one has it on record; else restore the old code"
    )


@pytest.mark.parametrize(
    ("recorded", "says"),
    [
        ({"x": "7"}, 'If who does not matter, declare the step with ignore=["who"]; '),
        ({}, 'If who and x does not matter, declare the step with ignore=["who","x"]; '),
        ({"x": "7", "name": '"me"'}, "If you renamed the parameter name to who, name it name until"),
        ({"x": "8", "who": '"me"'}, 'If it does not matter, ignore=["x"] helps runs that start later: '),
        ({"x": "7", "who": '"me"'}, "If it does not matter, ignore= helps runs that start later: "),
    ],
)
def test_a_remedy_is_named_only_where_it_lets_this_run_go_on(recorded: dict[str, str], says: str) -> None:
    told = changed_arguments(_recorded("ff" * 16, **recorded), ASKED, run="r", where="a.py:1")
    assert f"Nothing was executed. {says}" in str(told.remedy)
