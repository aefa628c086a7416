"""What happens to a run's row: every function over every state."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import asdict, replace

from ninelives.core.errors import (
    BadName,
    BadRecord,
    IdConflict,
    IllegalTransition,
    NineLivesError,
    RunFinished,
    StaleAnswer,
    UsageError,
)
from ninelives.core.journal import chain
from ninelives.core.model.commit import Change, Commit, End, Escalate, Outcome, Park, Verdict
from ninelives.core.model.inbox import Item, ItemKind, ItemState, NewItem, Signal
from ninelives.core.model.key import DoubtKey, KeyOp, SettleKey
from ninelives.core.model.run import INLINE_BYTES, Control, Kind, NewRun, Record, RunRow, State
from ninelives.core.model.session import Evidence, Fate, Session
from ninelives.core.model.totals import Tally
from ninelives.core.model.transitions import TABLE, Event
from ninelives.core.rules import inbox_rules, run_rules, validation

NOW = 1_000
NEW = NewRun(id="r1", agent="helper", fingerprint=b"f", body=b"{}")
ROW, (FIRST,) = run_rules.created(NEW, 1, 10)
FINAL = [State.COMPLETED, State.FAILED, State.CANCELLED]
HERE = [state for state in State if state is not State.MOVED]


def in_state(state: State, **fields: object) -> RunRow:
    """Return a row as it may be found in that state."""
    due = 500 if state in (State.PENDING, State.CHECKPOINTED) else None
    session = "s1" if state is State.RUNNING else None
    return replace(ROW, state=state, due_ms=due, session=session, epoch=3, **fields)


RUNNING = in_state(State.RUNNING)


def commit(
    run: RunRow = RUNNING, *bodies: bytes, kind: Kind = Kind.RESULT, change: Change | None = None
) -> Commit:
    records = chain.seal(run.length, run.head, [(kind, "step", 5, body, ()) for body in bodies], run.epoch)
    return Commit(
        run=run.id, epoch=run.epoch, length=run.length, head=run.head, records=records, change=change
    )


# Creating ----------------------------------------------------------------------------------------


def test_a_created_run_starts_its_chain() -> None:
    chain.verify("r1", ROW.base_check, 0, [FIRST], length=ROW.length, head=ROW.head)
    assert (FIRST.kind, FIRST.body, FIRST.at_ms) == (Kind.CREATED, b"{}", 10)
    assert (ROW.state, ROW.epoch, ROW.session, ROW.news) == (State.PENDING, 0, None, 0)


def test_a_new_run_has_what_it_was_asked_with_and_nothing_has_happened_to_it() -> None:
    prefix = (
        Record(7, Kind.RESULT, "#a#0", 8, b"1", (b"p",)),
        Record(8, Kind.PROGRESS, "", 8, b'"half"'),
        Record(9, Kind.FORKED, "", 9, b"o"),
    )
    new = NewRun(
        id="r9",
        agent="writer",
        fingerprint=b"g",
        body=b"[1]",
        blobs=(b"b",),
        queue="slow",
        pin="here",
        priority=5,
        labels={"team": "a"},
        parent="r1",
        due_ms=77,
        prefix=prefix,
    )
    run, records = run_rules.created(new, 4, 20)
    assert [(one.seq, one.kind, one.step, one.at_ms, one.body, one.blobs) for one in records] == [
        (0, Kind.CREATED, "", 20, b"[1]", (b"b",)),
        (1, Kind.RESULT, "#a#0", 8, b"1", (b"p",)),
        (2, Kind.PROGRESS, "", 8, b'"half"', ()),
        (3, Kind.FORKED, "", 9, b"o", ()),
    ]
    chain.verify("r9", chain.start("r9"), 0, records, length=4, head=run.head)
    assert run == RunRow(
        id="r9",
        number=4,
        agent="writer",
        fingerprint=b"g",
        queue="slow",
        pin="here",
        priority=5,
        labels={"team": "a"},
        parent="r1",
        state=State.PENDING,
        paused=False,
        cancelling=False,
        epoch=0,
        session=None,
        head=records[-1].check,
        length=4,
        base=0,
        base_check=chain.start("r9"),
        turn=0,
        turn_seq=0,
        due_ms=77,
        waits="",
        news=0,
        deaths=0,
        death_length=0,
        solo_deaths=0,
        is_alone=False,
        left_by=None,
        created_ms=20,
        changed_ms=20,
        steps=1,  # a fork is born with what it shares
        progress='"half"',
    )
    assert run_rules.blobs_of(new) == [b"b", b"p"]


def test_a_new_run_that_is_due_goes_to_the_session_that_creates_it() -> None:
    assert run_rules.created(NEW, 1, 10, "s2") == (run_rules.claimed(ROW, "s2", 10), (FIRST,))
    later = replace(NEW, due_ms=11)
    assert run_rules.created(later, 1, 10, "s2") == (replace(ROW, due_ms=11), (FIRST,))


@pytest.mark.parametrize("state", State)
def test_only_a_run_that_is_here_and_has_not_ended_may_have_children(state: State) -> None:
    refused = run_rules.refuses_children(in_state(state), "child")
    if state not in (*FINAL, State.MOVED):
        assert refused is None
        return
    assert refused is not None
    assert refused.what == f"the run 'r1' is {state} and cannot have a child any more"
    assert (refused.run, refused.remedy) == ("child", "Start it as an independent run")


def test_a_run_without_a_parent_is_nobody_s_child() -> None:
    assert run_rules.refuses_children(None, "child") is None


@pytest.mark.parametrize("state", State)
def test_failing_and_being_cancelled_takes_the_children_along(state: State) -> None:
    assert run_rules.takes_along(in_state(state)) is (state in (State.FAILED, State.CANCELLED))


def test_the_same_id_is_the_same_run_or_a_conflict() -> None:
    assert run_rules.same_or_conflict(ROW, replace(NEW, body=b"else", queue="else")) is ROW
    agent = run_rules.same_or_conflict(ROW, replace(NEW, agent="else"))
    arguments = run_rules.same_or_conflict(ROW, replace(NEW, fingerprint=b"else"))
    assert isinstance(agent, IdConflict)
    assert isinstance(arguments, IdConflict)
    remedy = "Use another id, or start it with the arguments it was created with"
    assert (agent.what, agent.run, agent.remedy) == ("the id exists with agent 'helper'", "r1", remedy)
    assert (arguments.what, arguments.run) == ("the id exists with other arguments", "r1")


# Claiming and releasing --------------------------------------------------------------------------


@pytest.mark.parametrize("due", [None, NOW - 1, NOW, NOW + 1])
@pytest.mark.parametrize("paused", [True, False])
@pytest.mark.parametrize("state", State)
def test_claimable_is_waiting_and_due_and_not_paused(state: State, paused: bool, due: int | None) -> None:
    expected = state in (State.PENDING, State.CHECKPOINTED) and not paused and due in (NOW - 1, NOW)
    assert run_rules.is_claimable(replace(ROW, state=state, paused=paused, due_ms=due), NOW) is expected


@pytest.mark.parametrize("state", State)
def test_claiming_in_every_state(state: State) -> None:
    run = in_state(state, waits="waits")
    if (state, Event.CLAIM) not in TABLE:
        with pytest.raises(IllegalTransition) as caught:
            run_rules.claimed(run, "s2", NOW)
        assert caught.value.run == "r1"
        return
    after = run_rules.claimed(run, "s2", NOW)
    assert after == replace(
        run, state=State.RUNNING, session="s2", epoch=4, due_ms=None, waits="", changed_ms=NOW
    )


@pytest.mark.parametrize(("deaths", "is_alone"), [(1, False), (2, True)])
def test_a_suspect_is_claimed_alone(deaths: int, is_alone: bool) -> None:
    assert run_rules.claimed(in_state(State.CHECKPOINTED, deaths=deaths), "s2", NOW).is_alone is is_alone


# Fates -------------------------------------------------------------------------------------------

SESSION = Session(
    id="s1", host="h", pid=1, code="", lease_ms=9, started_ms=1, renewed_ms=1, left_ms=1, keeper="k"
)
SEEN, UNSEEN = Evidence(is_gone=True, signal=9), Evidence(note="silent")


@pytest.mark.parametrize(
    ("session", "is_dropped", "is_held", "fate"),
    [
        ({}, False, False, Fate.LIVES),
        ({}, False, True, Fate.LIVES),
        ({"evidence": UNSEEN}, False, False, Fate.LIVES),
        ({"left_ms": 0}, False, False, Fate.UNKNOWN),
        ({"ended_ms": 5}, False, False, Fate.UNKNOWN),
        ({"ended_ms": 5}, False, True, Fate.LIVES),
        ({"ended_ms": 5, "evidence": UNSEEN}, False, True, Fate.LIVES),
        ({}, True, False, Fate.UNKNOWN),
        ({"keeper": ""}, True, False, Fate.GONE),
        ({"keeper": ""}, False, False, Fate.LIVES),
        ({"ended_ms": 5, "evidence": SEEN}, False, True, Fate.GONE),
    ],
)
def test_a_process_is_gone_only_when_that_was_seen(
    session: dict[str, object], is_dropped: bool, is_held: bool, fate: Fate
) -> None:
    known = replace(SESSION, **session)
    assert run_rules.fate_of(known, is_dropped=is_dropped, is_held=is_held) is fate
    assert is_held or run_rules.fate_of(known, is_dropped=is_dropped) is fate


def test_evidence_is_added_once_and_only_if_it_proves_the_end() -> None:
    assert run_rules.proved(SESSION, None) is SESSION
    assert run_rules.proved(SESSION, UNSEEN) is SESSION
    for known in (SESSION, replace(SESSION, evidence=UNSEEN)):
        assert run_rules.proved(known, SEEN) == replace(SESSION, evidence=SEEN)
    proved = replace(SESSION, evidence=SEEN)
    assert run_rules.proved(proved, Evidence(is_gone=True, note="later")) is proved


# News --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("due", "after"), [(None, NOW), (NOW + 5, NOW), (NOW - 5, NOW - 5)])
def test_news_makes_a_parked_run_due_and_never_later(due: int | None, after: int) -> None:
    run = replace(in_state(State.CHECKPOINTED), due_ms=due)
    assert run_rules.nudged(run, NOW) == replace(run, news=1, due_ms=after, changed_ms=NOW)


@pytest.mark.parametrize("state", [state for state in State if state is not State.CHECKPOINTED])
def test_news_only_counts_for_all_others(state: State) -> None:
    run = in_state(state)
    assert run_rules.nudged(run, NOW) == replace(run, news=1, changed_ms=NOW)


@pytest.mark.parametrize("state", State)
def test_resolving_lets_an_escalated_run_go_on_and_nudges_the_others(state: State) -> None:
    run = in_state(state, waits="doubt")
    after = run_rules.resolved(run, NOW)
    if state is State.ESCALATED:
        assert after == replace(run, state=State.CHECKPOINTED, waits="", due_ms=NOW, news=1, changed_ms=NOW)
    else:
        assert after == run_rules.nudged(run, NOW)


def test_needless_waits_are_news() -> None:
    assert run_rules.with_news(RUNNING, 0) == RUNNING
    assert run_rules.with_news(RUNNING, 2) == replace(RUNNING, news=2)


# Controls ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("control", Control)
@pytest.mark.parametrize("state", HERE)
def test_every_control_in_every_state_is_refused_or_idempotent(state: State, control: Control) -> None:
    run = in_state(state, length=2)
    refused = {
        Control.CANCEL: (State.COMPLETED, State.FAILED),
        Control.PAUSE: FINAL,
        Control.RESUME: FINAL,
        Control.RETRY: (State.COMPLETED, State.CANCELLED),
        Control.WAKE: (),
    }
    if state in refused[control]:
        with pytest.raises(RunFinished) as caught:
            run_rules.controlled(run, control, NOW)
        assert caught.value.run == "r1"
        return
    once = run_rules.controlled(run, control, NOW)
    assert run_rules.controlled(once, control, NOW + 9) is once


@pytest.mark.parametrize("state", [state for state in HERE if not state.is_final])
def test_pausing_and_resuming_changes_the_flag_and_counts_as_news(state: State) -> None:
    run = in_state(state)
    paused = run_rules.controlled(run, Control.PAUSE, NOW)
    assert paused == replace(run, paused=True, news=1, changed_ms=NOW)
    assert run_rules.controlled(paused, Control.RESUME, NOW) == replace(run, news=2, changed_ms=NOW)
    assert run_rules.controlled(run, Control.RESUME, NOW) is run


def test_pausing_moves_no_timer() -> None:
    run = replace(in_state(State.CHECKPOINTED), due_ms=NOW + 5)
    assert run_rules.controlled(run, Control.PAUSE, NOW).due_ms == NOW + 5


def test_cancelling_in_every_state() -> None:
    after = {
        state: run_rules.controlled(in_state(state, paused=True), Control.CANCEL, NOW)
        for state in HERE
        if state not in (State.COMPLETED, State.FAILED)
    }
    pending = in_state(State.PENDING, paused=True)
    assert after[State.PENDING] == replace(
        pending, state=State.CANCELLED, cancelling=True, due_ms=None, changed_ms=NOW
    )
    for state in (State.RUNNING, State.CHECKPOINTED, State.ESCALATED):
        run = after[state]
        assert (run.cancelling, run.paused, run.news) == (True, False, 1)
        assert run.state is (State.RUNNING if state is State.RUNNING else State.CHECKPOINTED)
        assert run.due_ms == {State.RUNNING: None, State.CHECKPOINTED: 500, State.ESCALATED: NOW}[state]
    assert after[State.CANCELLED] == in_state(State.CANCELLED, paused=True)


def test_retrying_a_failed_run_starts_afresh_with_the_same_journal() -> None:
    run = in_state(State.FAILED, deaths=9, solo_deaths=7, waits="w", cancelling=True, length=2)
    lively = replace(run, deaths=0, solo_deaths=0, waits="", cancelling=False)
    assert run_rules.controlled(run, Control.RETRY, NOW) == replace(
        lively, state=State.CHECKPOINTED, due_ms=NOW, news=1, changed_ms=NOW
    )


def test_what_is_no_control_is_refused() -> None:
    with pytest.raises(UsageError) as caught:
        run_rules.controlled(RUNNING, "stop", NOW)  # type: ignore[arg-type]
    told = caught.value
    assert (told.what, told.run) == ("'stop' is no control", "r1")
    assert told.remedy == "It is one of cancel, pause, resume, retry"


def test_a_failed_run_without_its_journal_cannot_be_retried() -> None:
    with pytest.raises(RunFinished, match="pruned"):
        run_rules.controlled(in_state(State.FAILED, base=1), Control.RETRY, NOW)


# Commits -----------------------------------------------------------------------------------------

CHANGES: list[Change | None] = [
    None,
    Park(7, "waits", 0),
    Escalate("doubt", 0),
    End(State.COMPLETED),
    End(State.FAILED),
    End(State.CANCELLED),
]


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize(
    "impostor", [{}, {"epoch": 2}, {"epoch": 4}, {"length": 0}, {"length": 2}, {"head": b"\0" * 16}]
)
def test_only_the_owner_at_the_end_of_the_journal_may_write(
    impostor: dict[str, object], state: State, change: Change | None
) -> None:
    run = in_state(state)
    made = replace(commit(run, b"x", change=change), **impostor)
    after = run_rules.committed(run, made, NOW)
    assert isinstance(after, RunRow) is (state is State.RUNNING and not impostor)
    if isinstance(after, Verdict):
        assert after == Verdict("r1", Outcome.FENCED)


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("bodies", [(), (b"x",), (b"x", b"y")])
def test_a_commit_made_again_is_known_and_no_other_is(
    change: Change | None, bodies: tuple[bytes, ...]
) -> None:
    made = commit(RUNNING, *bodies, change=change)
    after = run_rules.committed(RUNNING, made, NOW)
    assert isinstance(after, RunRow)
    assert run_rules.repeats(after, made)
    assert run_rules.repeats(RUNNING, made) is (not bodies and change is None)
    assert not run_rules.repeats(replace(after, epoch=4), made)
    assert not run_rules.repeats(replace(after, length=9), made)
    assert not run_rules.repeats(replace(after, head=b"\0" * 16), made)
    for state in State:
        if state is not after.state and not (isinstance(change, Escalate) and state is State.CHECKPOINTED):
            assert not run_rules.repeats(replace(after, state=state), made)


def test_appending_moves_length_and_head() -> None:
    made = commit(RUNNING, b"x", b"y")
    after = run_rules.committed(RUNNING, made, NOW)
    assert after == replace(RUNNING, length=3, head=made.records[-1].check, changed_ms=NOW)


def test_a_commit_writes_the_totals_that_it_knows() -> None:
    known = Tally(4, 5, 6, progress="1", last_error="e", retrying="{}")
    after = run_rules.committed(RUNNING, replace(commit(), tally=known), NOW)
    assert after == replace(RUNNING, changed_ms=NOW, **asdict(known))


@pytest.mark.parametrize(
    ("parts", "needless", "has_waiters", "wakes"),
    [
        ({}, 0, False, False),
        ({}, 0, True, True),
        ({}, 1, False, True),
        ({"change": Park(7, "waits", 0)}, 0, False, True),
        ({"opens": (NewItem(id="i", kind=ItemKind.DOUBT, step="", digest=b"", body=b""),)}, 0, False, True),
    ],
)
def test_a_commit_wakes_workers_only_if_it_concerns_them(
    parts: dict[str, object], needless: int, has_waiters: bool, wakes: bool
) -> None:
    made = replace(commit(RUNNING, b"x"), **parts)
    assert run_rules.wakes(made, needless=needless, has_waiters=has_waiters) is wakes


def test_a_turn_moves_the_start_of_the_journal() -> None:
    after = run_rules.committed(RUNNING, commit(RUNNING, b"x", b"y", kind=Kind.TURN), NOW)
    assert isinstance(after, RunRow)
    assert (after.turn, after.turn_seq) == (2, 2)


EFFECTS: list[dict[str, object]] = [
    {"keys": (DoubtKey("k"),)},
    {"opens": (NewItem(id="i", kind=ItemKind.DOUBT, step="", digest=b"", body=b""),)},
    {"closes": ("i",)},
    {"takes": (1,)},
]


@pytest.mark.parametrize("parts", EFFECTS, ids=lambda parts: next(iter(parts)))
def test_what_takes_or_gives_something_must_not_be_lost(parts: dict[str, object]) -> None:
    made = replace(commit(RUNNING, b"x", b"y"), **parts)
    assert run_rules.effect_length_of(made) == 3
    after = run_rules.committed(replace(RUNNING, effect_length=1), made, NOW)
    assert isinstance(after, RunRow)
    assert after.effect_length == 3


def test_output_must_not_be_lost_and_what_nobody_saw_may_be() -> None:
    quiet = replace(commit(RUNNING, b"x", b"y"), effect_length=2)
    assert not run_rules.emits(quiet)
    assert not run_rules.emits(replace(commit(RUNNING, b"x"), is_lone=True))
    assert run_rules.effect_length_of(quiet) == 2
    shown = replace(quiet.records[1], kind=Kind.OUTPUT)
    emitting = replace(quiet, records=(quiet.records[0], shown))
    assert run_rules.emits(emitting)
    assert run_rules.effect_length_of(emitting) == 3
    for known, kept in ((0, 2), (9, 9)):
        after = run_rules.committed(replace(RUNNING, effect_length=known), quiet, NOW)
        assert isinstance(after, RunRow)
        assert after.effect_length == kept


@pytest.mark.parametrize("change", [change for change in CHANGES if change is not None])
@pytest.mark.parametrize("scars", [{"deaths": 1}, {"left_by": "s0"}])
def test_leaving_a_run_alive_forgives_its_deaths(scars: dict[str, object], change: Change) -> None:
    run = replace(RUNNING, is_alone=True, **scars)
    after = run_rules.committed(run, commit(run, change=change), NOW)
    plain = run_rules.committed(RUNNING, commit(RUNNING, change=change), NOW)
    assert isinstance(plain, RunRow)
    assert after == plain
    assert run_rules.committed(run, commit(run), NOW) == replace(run, changed_ms=NOW)


@pytest.mark.parametrize(("seen", "due"), [(0, 7), (1, NOW), (-1, NOW)])
def test_parking_with_news_not_seen_is_due_at_once(seen: int, due: int) -> None:
    after = run_rules.committed(RUNNING, commit(change=Park(7, "waits", seen)), NOW)
    assert after == replace(
        RUNNING, state=State.CHECKPOINTED, session=None, due_ms=due, waits="waits", changed_ms=NOW
    )


@pytest.mark.parametrize(("seen", "state", "due"), [(0, State.ESCALATED, None), (1, State.CHECKPOINTED, NOW)])
def test_escalating_with_news_not_seen_parks_instead(seen: int, state: State, due: int | None) -> None:
    after = run_rules.committed(RUNNING, commit(change=Escalate("doubt", seen)), NOW)
    assert after == replace(RUNNING, state=state, session=None, due_ms=due, waits="doubt", changed_ms=NOW)


@pytest.mark.parametrize("state", FINAL)
def test_ending_leaves_no_owner_and_no_timer(state: State) -> None:
    timed = replace(RUNNING, due_ms=5, waits="w")
    after = run_rules.committed(timed, commit(change=End(state)), NOW)  # type: ignore[arg-type]
    assert after == replace(RUNNING, state=state, session=None, changed_ms=NOW)


def test_escalating_leaves_no_timer() -> None:
    after = run_rules.committed(replace(RUNNING, due_ms=5), commit(change=Escalate("doubt", 0)), NOW)
    assert isinstance(after, RunRow)
    assert (after.state, after.due_ms) == (State.ESCALATED, None)


# Content -----------------------------------------------------------------------------------------


def sound() -> Commit:
    return replace(
        commit(RUNNING, b"x" * INLINE_BYTES, kind=Kind.SIGNAL),
        takes=(1,),
        keys=(SettleKey("k", b"x" * INLINE_BYTES), DoubtKey("k")),
        opens=(NewItem(id="i", kind=ItemKind.DOUBT, step="", digest=b"", body=b"x" * INLINE_BYTES),),
    )


def first(**fields: object) -> Commit:
    made = sound()
    return replace(made, records=(replace(made.records[0], **fields),))


def opens(**fields: object) -> Commit:
    return replace(sound(), opens=(replace(sound().opens[0], **fields),))


def keys(*ops: KeyOp) -> Commit:
    return replace(sound(), keys=ops)


WRONG: list[tuple[Commit, type[NineLivesError]]] = [
    (first(seq=0), BadRecord),
    (first(seq=2), BadRecord),
    (first(check=b""), BadRecord),
    (first(check=b"x" * 17), BadRecord),
    (first(body=b"x" * (INLINE_BYTES + 1)), BadRecord),
    (first(step="\0"), BadRecord),
    (first(step="\ud800"), BadRecord),
    (first(at_ms=-1), BadRecord),
    (first(at_ms=2**63), BadRecord),
    (first(kind=Kind.RESULT), BadRecord),
    (replace(sound(), takes=(1, 2)), BadRecord),
    (replace(sound(), records=(), takes=()), BadRecord),
    (replace(sound(), change=Park(-1, "", 0)), BadRecord),
    (replace(sound(), change=Park(2**63, "", 0)), BadRecord),
    (replace(sound(), change=Park(None, "\ud800", 0)), BadRecord),
    (replace(sound(), change=Escalate("\0", 0)), BadRecord),
    (keys(SettleKey("k", b"x" * (INLINE_BYTES + 1))), BadRecord),
    (keys(DoubtKey("")), BadName),
    (keys(DoubtKey("e\u0301")), BadName),
    (opens(id=""), BadName),
    (opens(body=b"x" * (INLINE_BYTES + 1)), BadRecord),
    (opens(step="\0"), BadRecord),
    (opens(to="\ud800"), BadRecord),
    (opens(deadline_ms=2**63), BadRecord),
]


def test_sound_content_has_no_fault() -> None:
    assert validation.fault_in(sound()) is None
    assert validation.fault_in(commit()) is None
    assert validation.fault_in(replace(sound(), change=Park(2**63 - 1, "wartet: ä", 0))) is None


@pytest.mark.parametrize(("wrong", "kind"), WRONG)
def test_wrong_content_is_named(wrong: Commit, kind: type[NineLivesError]) -> None:
    assert type(validation.fault_in(wrong)) is kind


def test_each_take_belongs_to_a_signal_record() -> None:
    records = [(kind, "", 1, b"", ()) for kind in (Kind.LOG, Kind.SIGNAL, Kind.RESULT, Kind.SIGNAL)]
    made = replace(commit(), records=chain.seal(1, RUNNING.head, records, RUNNING.epoch), takes=(8, 3))
    assert inbox_rules.taken_in(made) == [(8, 2), (3, 4)]


def test_blobs_of_records_and_keys_are_referred_to() -> None:
    made = replace(
        commit(),
        records=(Record(1, Kind.LOG, "", 1, b"", (b"a", b"b")),),
        keys=(SettleKey("k", b"", (b"c",)),),
    )
    assert run_rules.blobs_in(made) == [b"a", b"b", b"c"]
    assert run_rules.blobs_in(replace(made, keys=(DoubtKey("k"),))) == [b"a", b"b"]


# Items, signals, turns ---------------------------------------------------------------------------

NEW_ITEM = NewItem(id="i", kind=ItemKind.DOUBT, step="s", digest=b"d", body=b"?", to="ops", deadline_ms=3)


def item(state: ItemState = ItemState.OPEN, **fields: object) -> Item:
    made = inbox_rules.opened(None, NEW_ITEM, "r1", 10)
    assert isinstance(made, Item)
    return replace(made, state=state, **fields)


@pytest.mark.parametrize("state", ItemState)
def test_opening_again_gives_the_known_item_or_refuses(state: ItemState) -> None:
    known = item(state, answer=b"yes", by="ada", answered_ms=11)
    assert inbox_rules.opened(known, NEW_ITEM, "r1", NOW) is known
    for other in (
        {"kind": ItemKind.BUDGET},
        {"step": "t"},
        {"digest": b"e"},
        {"body": b""},
        {"to": ""},
        {"deadline_ms": None},
    ):
        verdict = inbox_rules.opened(known, replace(NEW_ITEM, **other), "r1", NOW)
        assert isinstance(verdict, Verdict)
        assert verdict.outcome is Outcome.REFUSED
    assert isinstance(inbox_rules.opened(known, NEW_ITEM, "r2", NOW), Verdict)


def test_answering_an_open_item() -> None:
    assert inbox_rules.answered(item(), "i", b"d", b"yes", "ada", NOW) == item(
        ItemState.ANSWERED, answer=b"yes", by="ada", answered_ms=NOW
    )


def test_the_same_answer_again_is_the_item() -> None:
    known = item(ItemState.ANSWERED, answer=b"yes", by="ada", answered_ms=11)
    assert inbox_rules.answered(known, "i", b"d", b"yes", "ada", NOW) is known


@pytest.mark.parametrize(
    ("known", "digest", "body", "by"),
    [
        (None, b"d", b"yes", "ada"),
        (item(), b"e", b"yes", "ada"),
        (item(ItemState.CLOSED), b"d", b"", ""),
        (item(ItemState.ANSWERED, answer=b"yes", by="ada"), b"d", b"no", "ada"),
        (item(ItemState.ANSWERED, answer=b"yes", by="ada"), b"d", b"yes", "bob"),
        (item(ItemState.ANSWERED, answer=b"yes", by="ada"), b"e", b"yes", "ada"),
    ],
)
def test_all_other_answers_are_stale(known: Item | None, digest: bytes, body: bytes, by: str) -> None:
    with pytest.raises(StaleAnswer):
        inbox_rules.answered(known, "i", digest, body, by, NOW)


def test_a_signal_id_means_one_signal() -> None:
    known = Signal(run="r1", number=1, name="go", id="x", body=b"1", at_ms=1)
    assert inbox_rules.same_signal(known, "go", b"1") is known
    for name, body in (("stop", b"1"), ("go", b"2")):
        with pytest.raises(IdConflict):
            inbox_rules.same_signal(known, name, body)


def due_run(
    name: str, agent: str = "a", *, priority: int = 0, due_ms: int | None = 1, number: int = 1
) -> RunRow:
    return replace(ROW, id=name, agent=agent, priority=priority, due_ms=due_ms, number=number)


def test_the_urgent_come_first_then_agents_in_turn_then_the_longest_due_then_the_oldest() -> None:
    due = [
        due_run("late", due_ms=9),
        due_run("young", due_ms=5, number=3),
        due_run("old", due_ms=5, number=2),
        due_run("b first", "b", due_ms=50, number=9),
        due_run("b second", "b", due_ms=60, number=8),
        due_run("urgent", "b", priority=1, due_ms=99),
        due_run("never timed", due_ms=None, number=7),
        due_run("not ours", "c", priority=9),
    ]

    def names(agents: dict[str, int], limit: int) -> list[str]:
        return [run.id for run in run_rules.chosen(due, agents, limit)]

    both = ["urgent", "never timed", "b first", "old", "b second", "young", "late"]
    assert names({"a": 9, "b": 9}, 9) == both
    assert names({"a": 9, "b": 9}, 3) == both[:3]
    assert names({"b": 9, "a": 9}, 9)[:3] == ["urgent", "b first", "never timed"]
    assert names({"a": 2, "b": 1}, 9) == ["urgent", "never timed", "old"]
    assert names({"a": 1, "c": 0}, 9) == ["never timed"]
    assert names({"a": 9}, 0) == names({"a": 9}, -1) == []


def test_alone_is_given_one_suspect_of_ours_that_has_waited_longest() -> None:
    due = [
        due_run("late", priority=5, due_ms=9),
        due_run("young", due_ms=5, number=3),
        due_run("old", due_ms=5, number=2),
        due_run("not ours", "b", due_ms=1),
        due_run("refused", "c", due_ms=1),
    ]

    def names(due: list[RunRow], limit: int) -> list[str]:
        return [run.id for run in run_rules.chosen(due, {"a": 1, "c": 0}, limit, solo=True)]

    assert names(due, 1) == names(due, 5) == ["old"]
    assert names(due, 0) == names(due, -1) == []
    assert names([*due, due_run("never timed", due_ms=None, number=9)], 1) == ["never timed"]


@given(st.lists(st.integers(0, 5), max_size=5), st.integers(0, 20))
def test_agents_take_turns_and_nobody_is_passed_over(sizes: list[int], limit: int) -> None:
    waiting = [
        [replace(ROW, id=f"{agent}.{n}", agent=str(agent), number=n) for n in range(size)]
        for agent, size in enumerate(sizes)
    ]
    due = [run for of_agent in waiting for run in of_agent]
    picked = run_rules.chosen(due, {str(agent): 99 for agent in range(len(sizes))}, limit)
    assert len(picked) == min(limit, sum(sizes))
    counts = [sum(run.id.startswith(f"{agent}.") for run in picked) for agent in range(len(sizes))]
    for agent, size in enumerate(sizes):
        mine = [run for run in picked if run.id.startswith(f"{agent}.")]
        assert mine == waiting[agent][: len(mine)]
        if len(mine) < size:
            assert max(counts) <= len(mine) + 1


@given(
    st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 2)), max_size=40),
    st.integers(1, 4),
    st.randoms(),
)
def test_whoever_is_given_few_at_a_time_passes_nobody_over(
    waiting: list[tuple[str, int]], limit: int, rng: Random
) -> None:
    due = [
        replace(ROW, id=f"r{n}", agent=agent, priority=priority, number=n)
        for n, (agent, priority) in enumerate(waiting)
    ]
    order = rng.sample("abcd", 4)
    passed: Counter[str] = Counter()
    while due:
        top = max(run.priority for run in due)
        hungry = {run.agent for run in due if run.priority == top}
        picked = run_rules.chosen(due, dict.fromkeys(order, 99), limit)
        assert len(picked) == min(limit, len(due))
        assert [-run.priority for run in picked] == sorted(-run.priority for run in picked)
        due = [run for run in due if run not in picked]
        for run in picked:
            order.remove(run.agent)
            order.append(run.agent)
        for agent in "abcd":
            is_served = any(run.agent == agent for run in picked)
            passed[agent] = 0 if is_served or agent not in hungry else passed[agent] + 1
        assert max(passed.values()) <= 3


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 2)), min_size=2, max_size=8, unique=True))
def test_a_suspect_that_dies_again_comes_after_all_others(waiting: list[tuple[str, int]]) -> None:
    due = [
        replace(ROW, id=f"r{n}", agent=agent, priority=priority, number=n, due_ms=NOW)
        for n, (agent, priority) in enumerate(waiting)
    ]
    served = []
    for turn in range(1, 2 * len(due) + 1):
        (one,) = run_rules.chosen(due, dict.fromkeys("abcd", 9), 5, solo=True)
        served.append(one.id)
        due[due.index(one)] = replace(one, due_ms=NOW + turn)
    names = [run.id for run in due]
    assert served == names * 2


@pytest.mark.parametrize(
    ("control", "done"),
    [
        (Control.PAUSE, "paused"),
        (Control.RESUME, "resumed"),
        (Control.CANCEL, "cancelled"),
        (Control.RETRY, "retried"),
    ],
)
def test_what_comes_too_late_is_told_by_name(control: Control, done: str) -> None:
    with pytest.raises(RunFinished) as caught:
        run_rules.controlled(in_state(State.COMPLETED), control, NOW)
    told = caught.value
    assert told.what == f"the run is completed and cannot be {done}"
    assert (told.run, told.remedy) == ("r1", "Start a new run, or fork this one")


def test_a_pruned_run_cannot_be_retried() -> None:
    pruned = in_state(State.FAILED, base=1)
    with pytest.raises(RunFinished, match="cannot be retried: its journal has been pruned"):
        run_rules.controlled(pruned, Control.RETRY, NOW)


@pytest.mark.parametrize("control", Control)
def test_a_run_that_was_moved_takes_no_control(control: Control) -> None:
    with pytest.raises(RunFinished, match="moved to there"):
        run_rules.controlled(in_state(State.MOVED, waits="moved to there"), control, NOW)
