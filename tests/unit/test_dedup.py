"""The dedup table's rules: every state of a key with every operation, by its owner and by others."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from ninelives.core.errors import BadRecord, KeyConflict
from ninelives.core.model.commit import Outcome, Verdict
from ninelives.core.model.key import (
    AdoptKey,
    DoubtKey,
    Key,
    KeyState,
    PassKey,
    ReleaseKey,
    ReserveKey,
    SettleKey,
)
from ninelives.core.rules import dedup

NOW = 99
RESERVE = ReserveKey("k", "refund", b"a", False)
HELD = (KeyState.RESERVED, KeyState.IN_DOUBT)
HERE = [state for state in KeyState if state is not KeyState.MOVED]


def row(state: KeyState, run: str = "mine", *, resumable: bool = True) -> Key:
    return Key(
        key="k",
        action="refund",
        fingerprint=b"a",
        run=run,
        resumable=resumable,
        state=state,
        generation=3,
        body=b"old",
        blobs=(b"blob",),
        changed_ms=1,
    )


def test_a_key_never_used_is_reserved_in_generation_zero() -> None:
    assert dedup.reserved(None, RESERVE, "mine", NOW) == Key(
        key="k",
        action="refund",
        fingerprint=b"a",
        run="mine",
        resumable=False,
        state=KeyState.RESERVED,
        generation=0,
        body=b"",
        blobs=(),
        changed_ms=NOW,
    )


@pytest.mark.parametrize("run", ["mine", "other"])
@pytest.mark.parametrize("state", HERE)
def test_reserving_in_every_state(state: KeyState, run: str) -> None:
    known = row(state, run)
    after = dedup.reserved(known, RESERVE, "mine", NOW)
    if state is KeyState.FREE:
        fresh = dedup.reserved(None, RESERVE, "mine", NOW)
        assert isinstance(fresh, Key)
        assert after == replace(fresh, generation=3)
    elif state is KeyState.PRUNED:
        assert isinstance(after, Verdict)
        assert (after.outcome, type(after.error)) == (Outcome.REFUSED, KeyConflict)
    elif state is KeyState.RESERVED and run == "mine":
        assert after is known
    else:
        assert after == Verdict("mine", Outcome.HELD, key=known)


@pytest.mark.parametrize("op", [ReserveKey("k", "else", b"a", True), ReserveKey("k", "refund", b"b", True)])
@pytest.mark.parametrize("run", ["mine", "other"])
@pytest.mark.parametrize("state", HERE)
def test_reserving_for_something_else_in_every_state(state: KeyState, run: str, op: ReserveKey) -> None:
    after = dedup.reserved(row(state, run), op, "mine", NOW)
    if state is KeyState.FREE:
        assert isinstance(after, Key)
        assert (after.action, after.fingerprint, after.run) == (op.action, op.fingerprint, "mine")
    else:
        assert isinstance(after, Verdict)
        assert (after.outcome, type(after.error)) == (Outcome.REFUSED, KeyConflict)
        assert "'k'" in str(after.error)


def test_a_conflict_names_the_run_and_what_differs() -> None:
    known = row(KeyState.SETTLED, "other")
    for op, what in (
        (replace(RESERVE, action="else"), "action 'refund'"),
        (replace(RESERVE, fingerprint=b"b"), "other arguments"),
    ):
        verdict = dedup.reserved(known, op, "mine", NOW)
        assert isinstance(verdict, Verdict)
        assert f"belongs to run 'other' with {what}" in str(verdict.error)


@pytest.mark.parametrize(
    ("window_ms", "remedy"),
    [
        (None, "Use another key, or declare key_window= if it may be used again"),
        (10_000_000, "Use another key, or wait: by its key_window= it may be used again in 9000 s"),
    ],
)
def test_a_pruned_key_says_when_it_may_be_used_again(window_ms: int | None, remedy: str) -> None:
    verdict = dedup.reserved(
        row(KeyState.PRUNED), replace(RESERVE, window_ms=window_ms), "mine", now_ms=1_000_001
    )
    assert isinstance(verdict, Verdict)
    assert isinstance(verdict.error, KeyConflict)
    assert verdict.error.remedy == remedy


OPS = [SettleKey("k", b"new", (b"n",)), ReleaseKey("k"), DoubtKey("k")]


@pytest.mark.parametrize("op", OPS, ids=lambda op: type(op).__name__)
@pytest.mark.parametrize("run", ["mine", "other"])
@pytest.mark.parametrize("state", KeyState)
def test_changing_in_every_state(state: KeyState, run: str, op: SettleKey | ReleaseKey | DoubtKey) -> None:
    known = row(state, run)
    after = dedup.changed(known, op, "mine", NOW)
    if run != "mine" or state not in HELD:
        assert isinstance(after, Verdict)
        assert (after.run, after.outcome, type(after.error)) == ("mine", Outcome.REFUSED, BadRecord)
        return
    expected = {
        SettleKey: replace(known, state=KeyState.SETTLED, body=b"new", blobs=(b"n",), changed_ms=NOW),
        ReleaseKey: replace(known, state=KeyState.FREE, generation=4, changed_ms=NOW),
        DoubtKey: replace(known, state=KeyState.IN_DOUBT, changed_ms=NOW),
    }
    assert after == expected[type(op)]


@pytest.mark.parametrize("op", OPS, ids=lambda op: type(op).__name__)
def test_a_key_never_used_cannot_be_changed(op: SettleKey | ReleaseKey | DoubtKey) -> None:
    after = dedup.changed(None, op, "mine", NOW)
    assert isinstance(after, Verdict)
    assert (after.outcome, type(after.error)) == (Outcome.REFUSED, BadRecord)


def test_the_key_of_an_ended_owner_is_free_or_orphaned_in_the_same_generation() -> None:
    free, doubt = row(KeyState.RESERVED), row(KeyState.RESERVED, resumable=False)
    assert dedup.orphaned(free, NOW) == replace(free, state=KeyState.FREE, changed_ms=NOW)
    for known in (doubt, row(KeyState.IN_DOUBT), row(KeyState.IN_DOUBT, resumable=False)):
        assert dedup.orphaned(known, NOW) == replace(known, state=KeyState.ORPHANED, changed_ms=NOW)


@pytest.mark.parametrize("state", KeyState)
def test_only_an_orphaned_key_is_adopted(state: KeyState) -> None:
    known = row(state, "other")
    after = dedup.changed(known, AdoptKey("k"), "mine", NOW)
    if state is KeyState.ORPHANED:
        assert after == replace(known, state=KeyState.IN_DOUBT, run="mine", changed_ms=NOW)
    else:
        assert after == Verdict("mine", Outcome.HELD, key=known)


@pytest.mark.parametrize("resumable", [True, False])
def test_only_a_resumable_key_is_passed_on(resumable: bool) -> None:
    known = row(KeyState.RESERVED, resumable=resumable)
    after = dedup.changed(known, PassKey("k"), "mine", NOW)
    if resumable:
        assert after == replace(known, state=KeyState.FREE, changed_ms=NOW)
    else:
        assert isinstance(after, Verdict)
        assert (after.outcome, type(after.error)) == (Outcome.REFUSED, BadRecord)


@pytest.mark.parametrize("age_ms", [9, 10])
@pytest.mark.parametrize("state", HERE)
def test_a_used_key_may_be_reserved_again_after_the_window(state: KeyState, age_ms: int) -> None:
    known = replace(row(state, "other"), changed_ms=NOW - age_ms)
    after = dedup.reserved(known, replace(RESERVE, window_ms=10), "mine", NOW)
    if state in (KeyState.SETTLED, KeyState.PRUNED) and age_ms == 10:
        assert isinstance(after, Key)
        assert (after.state, after.generation, after.run) == (KeyState.RESERVED, 4, "mine")
    else:
        expected = dedup.reserved(known, RESERVE, "mine", NOW)
        assert type(after) is type(expected)
        assert not isinstance(after, Key) or after == expected


@pytest.mark.parametrize("run", ["mine", "other"])
@pytest.mark.parametrize("state", KeyState)
def test_only_a_key_that_another_run_holds_is_worth_waiting_for(state: KeyState, run: str) -> None:
    assert dedup.is_held(row(state, run), "mine") is (state in HELD and run == "other")


@pytest.mark.parametrize("run", ["mine", "other"])
@pytest.mark.parametrize("state", KeyState)
def test_only_a_key_that_is_held_is_of_its_owner(state: KeyState, run: str) -> None:
    assert dedup.is_of_owner(row(state, run), "mine") is (state in HELD and run == "mine")


def test_a_key_never_used_is_not_held() -> None:
    assert dedup.is_held(None, "mine") is False


@pytest.mark.parametrize("after", KeyState)
@pytest.mark.parametrize("before", [None, *KeyState])
def test_only_leaving_the_held_states_lets_go(before: KeyState | None, after: KeyState) -> None:
    known = row(before) if before else None
    assert dedup.lets_go(known, row(after)) is (before in HELD and after not in HELD)


def test_a_tombstone_keeps_the_name_and_the_time_and_nothing_of_the_result() -> None:
    known = row(KeyState.SETTLED)
    assert dedup.pruned(known) == replace(known, state=KeyState.PRUNED, body=b"", blobs=())


def _error(answer: Key | Verdict) -> tuple[str, str | None, str, str | None]:
    assert isinstance(answer, Verdict)
    assert answer.error is not None
    return answer.run, answer.error.run, answer.error.what, answer.error.remedy


def test_refusals_say_which_key_whose_and_what_to_do() -> None:
    told = _error(dedup.reserved(row(KeyState.PRUNED), RESERVE, "asker", NOW))
    what = "the key 'k' was used before and its result has been pruned"
    remedy = "Use another key, or declare key_window= if it may be used again"
    assert told == ("asker", "asker", what, remedy)
    remedy = "Use a key that contains everything that makes the action different, or declare identity="
    for known, other in (
        (replace(row(KeyState.SETTLED, "theirs"), action="mail"), "action 'mail'"),
        (replace(row(KeyState.SETTLED, "theirs"), fingerprint=b"b"), "other arguments"),
    ):
        told = _error(dedup.reserved(known, RESERVE, "asker", NOW))
        assert told == ("asker", "asker", f"the key 'k' belongs to run 'theirs' with {other}", remedy)


def test_what_is_not_held_is_refused_by_name() -> None:
    for known, state in ((None, "unknown"), (row(KeyState.SETTLED), "settled"), (row(KeyState.FREE), "free")):
        told = _error(dedup.changed(known, SettleKey("k", b""), "mine", NOW))
        assert told == ("mine", "mine", f"the key 'k' is {state} and not held by this run", None)
    told = _error(dedup.changed(row(KeyState.RESERVED, resumable=False), PassKey("k"), "mine", NOW))
    what = "the key 'k' is of a non-resumable action: nothing proves that it did not happen"
    assert told == ("mine", "mine", what, None)


def test_a_key_whose_owner_has_moved_is_refused_with_the_address() -> None:
    known = replace(row(KeyState.MOVED, "other"), body=b'"sqlite:///there.db"')
    for op in (RESERVE, replace(RESERVE, window_ms=0)):
        verdict = dedup.reserved(known, op, "mine", NOW)
        assert isinstance(verdict, Verdict)
        assert "sqlite:///there.db" in str(verdict.error)
