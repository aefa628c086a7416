"""What happens to a run's row: every function over every state."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from ninelives.core import chain, faults, messages, runs
from ninelives.core.commits import Change, Commit, End, Escalate, Outcome, Park, Verdict
from ninelives.core.errors import (
    BadName,
    BadRecord,
    IdConflict,
    IllegalTransition,
    NineLivesError,
    RunFinished,
    StaleAnswer,
)
from ninelives.core.inbox import Item, ItemKind, ItemState, NewItem, Signal
from ninelives.core.keyring import DoubtKey, KeyOp, SettleKey
from ninelives.core.model import INLINE_BYTES, Control, Kind, NewRun, Record, Run, State
from ninelives.core.transitions import TABLE, Event

NOW = 1_000
NEW = NewRun(id="r1", agent="helper", fingerprint=b"f", body=b"{}")
ROW, (FIRST,) = runs.created(NEW, 1, 10)
FINAL = [State.COMPLETED, State.FAILED, State.CANCELLED]


def in_state(state: State, **fields: object) -> Run:
    """Return a row as it may be found in that state."""
    due = 500 if state in (State.PENDING, State.CHECKPOINTED) else None
    session = "s1" if state is State.RUNNING else None
    return replace(ROW, state=state, due_ms=due, session=session, epoch=3, **fields)


RUNNING = in_state(State.RUNNING)


def commit(
    run: Run = RUNNING, *bodies: bytes, kind: Kind = Kind.RESULT, change: Change | None = None
) -> Commit:
    records = chain.seal(run.length, run.head, [(kind, "step", 5, body, ()) for body in bodies])
    return Commit(
        run=run.id, epoch=run.epoch, length=run.length, head=run.head, records=records, change=change
    )


# Creating ----------------------------------------------------------------------------------------


def test_a_created_run_starts_its_chain() -> None:
    chain.verify("r1", ROW.base_check, 0, [FIRST], length=ROW.length, head=ROW.head)
    assert (FIRST.kind, FIRST.body, FIRST.at_ms) == (Kind.CREATED, b"{}", 10)
    assert (ROW.state, ROW.epoch, ROW.session, ROW.news) == (State.PENDING, 0, None, 0)


def test_the_same_id_is_the_same_run_or_a_conflict() -> None:
    assert runs.same_or_conflict(ROW, replace(NEW, body=b"else", queue="else")) is ROW
    agent = runs.same_or_conflict(ROW, replace(NEW, agent="else"))
    arguments = runs.same_or_conflict(ROW, replace(NEW, fingerprint=b"else"))
    assert isinstance(agent, IdConflict)
    assert isinstance(arguments, IdConflict)
    assert "agent 'helper'" in str(agent)
    assert "other arguments" in str(arguments)


# Claiming and releasing --------------------------------------------------------------------------


@pytest.mark.parametrize("due", [None, NOW - 1, NOW, NOW + 1])
@pytest.mark.parametrize("paused", [True, False])
@pytest.mark.parametrize("state", State)
def test_claimable_is_waiting_and_due_and_not_paused(state: State, paused: bool, due: int | None) -> None:
    expected = state in (State.PENDING, State.CHECKPOINTED) and not paused and due in (NOW - 1, NOW)
    assert runs.is_claimable(replace(ROW, state=state, paused=paused, due_ms=due), NOW) is expected


@pytest.mark.parametrize("state", State)
def test_claiming_in_every_state(state: State) -> None:
    run = in_state(state, waits="waits")
    if (state, Event.CLAIM) not in TABLE:
        with pytest.raises(IllegalTransition):
            runs.claimed(run, "s2", NOW)
        return
    after = runs.claimed(run, "s2", NOW)
    assert after == replace(
        run, state=State.RUNNING, session="s2", epoch=4, due_ms=None, waits="", changed_ms=NOW
    )


# News --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("due", "after"), [(None, NOW), (NOW + 5, NOW), (NOW - 5, NOW - 5)])
def test_news_makes_a_parked_run_due_and_never_later(due: int | None, after: int) -> None:
    run = replace(in_state(State.CHECKPOINTED), due_ms=due)
    assert runs.nudged(run, NOW) == replace(run, news=1, due_ms=after, changed_ms=NOW)


@pytest.mark.parametrize("state", [state for state in State if state is not State.CHECKPOINTED])
def test_news_only_counts_for_all_others(state: State) -> None:
    run = in_state(state)
    assert runs.nudged(run, NOW) == replace(run, news=1, changed_ms=NOW)


@pytest.mark.parametrize("state", State)
def test_resolving_lets_an_escalated_run_go_on_and_nudges_the_others(state: State) -> None:
    run = in_state(state, waits="doubt")
    after = runs.resolved(run, NOW)
    if state is State.ESCALATED:
        assert after == replace(run, state=State.CHECKPOINTED, waits="", due_ms=NOW, news=1, changed_ms=NOW)
    else:
        assert after == runs.nudged(run, NOW)


def test_needless_waits_are_news() -> None:
    assert runs.told(RUNNING, 0) == RUNNING
    assert runs.told(RUNNING, 2) == replace(RUNNING, news=2)


# Controls ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("control", Control)
@pytest.mark.parametrize("state", State)
def test_every_control_in_every_state_is_refused_or_idempotent(state: State, control: Control) -> None:
    run = in_state(state, length=2)
    refused = {
        Control.CANCEL: (State.COMPLETED, State.FAILED),
        Control.PAUSE: FINAL,
        Control.RESUME: FINAL,
        Control.RETRY: (State.COMPLETED, State.CANCELLED),
    }
    if state in refused[control]:
        with pytest.raises(RunFinished) as caught:
            runs.controlled(run, control, NOW)
        assert caught.value.run == "r1"
        return
    once = runs.controlled(run, control, NOW)
    assert runs.controlled(once, control, NOW + 9) is once


@pytest.mark.parametrize("state", [state for state in State if not state.is_final])
def test_pausing_and_resuming_changes_the_flag_and_counts_as_news(state: State) -> None:
    run = in_state(state)
    paused = runs.controlled(run, Control.PAUSE, NOW)
    assert paused == replace(run, paused=True, news=1, changed_ms=NOW)
    assert runs.controlled(paused, Control.RESUME, NOW) == replace(run, news=2, changed_ms=NOW)
    assert runs.controlled(run, Control.RESUME, NOW) is run


def test_cancelling_in_every_state() -> None:
    after = {
        state: runs.controlled(in_state(state, paused=True), Control.CANCEL, NOW)
        for state in State
        if state not in (State.COMPLETED, State.FAILED)
    }
    pending = after[State.PENDING]
    assert (pending.state, pending.cancelling, pending.due_ms) == (State.CANCELLED, True, None)
    for state in (State.RUNNING, State.CHECKPOINTED, State.ESCALATED):
        run = after[state]
        assert (run.cancelling, run.paused, run.news) == (True, False, 1)
        assert run.state is (State.RUNNING if state is State.RUNNING else State.CHECKPOINTED)
        assert run.due_ms == {State.RUNNING: None, State.CHECKPOINTED: 500, State.ESCALATED: NOW}[state]
    assert after[State.CANCELLED] == in_state(State.CANCELLED, paused=True)


def test_retrying_a_failed_run_starts_afresh_with_the_same_journal() -> None:
    run = in_state(State.FAILED, deaths=9, cancelling=True, length=2)
    after = runs.controlled(run, Control.RETRY, NOW)
    assert (after.state, after.deaths, after.cancelling, after.due_ms) == (State.CHECKPOINTED, 0, False, NOW)
    assert (after.length, after.head, after.epoch) == (run.length, run.head, run.epoch)


def test_a_failed_run_without_its_journal_cannot_be_retried() -> None:
    with pytest.raises(RunFinished, match="pruned"):
        runs.controlled(in_state(State.FAILED, base=1), Control.RETRY, NOW)


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
    after = runs.committed(run, made, NOW)
    assert isinstance(after, Run) is (state is State.RUNNING and not impostor)
    if isinstance(after, Verdict):
        assert after == Verdict("r1", Outcome.FENCED)


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("bodies", [(), (b"x",), (b"x", b"y")])
def test_a_commit_made_again_is_known_and_no_other_is(
    change: Change | None, bodies: tuple[bytes, ...]
) -> None:
    made = commit(RUNNING, *bodies, change=change)
    after = runs.committed(RUNNING, made, NOW)
    assert isinstance(after, Run)
    assert runs.repeats(after, made)
    assert runs.repeats(RUNNING, made) is (not bodies and change is None)
    assert not runs.repeats(replace(after, epoch=4), made)
    assert not runs.repeats(replace(after, length=9), made)
    assert not runs.repeats(replace(after, head=b"\0" * 16), made)
    for state in State:
        if state is not after.state and not (isinstance(change, Escalate) and state is State.CHECKPOINTED):
            assert not runs.repeats(replace(after, state=state), made)


def test_appending_moves_length_and_head() -> None:
    made = commit(RUNNING, b"x", b"y")
    after = runs.committed(RUNNING, made, NOW)
    assert after == replace(RUNNING, length=3, head=made.records[-1].check, changed_ms=NOW)


def test_a_turn_moves_the_start_of_the_journal() -> None:
    after = runs.committed(RUNNING, commit(RUNNING, b"x", b"y", kind=Kind.TURN), NOW)
    assert isinstance(after, Run)
    assert (after.turn, after.turn_seq) == (2, 2)


@pytest.mark.parametrize(("seen", "due"), [(0, 7), (1, NOW), (-1, NOW)])
def test_parking_with_news_not_seen_is_due_at_once(seen: int, due: int) -> None:
    after = runs.committed(RUNNING, commit(change=Park(7, "waits", seen)), NOW)
    assert after == replace(
        RUNNING, state=State.CHECKPOINTED, session=None, due_ms=due, waits="waits", changed_ms=NOW
    )


@pytest.mark.parametrize(("seen", "state", "due"), [(0, State.ESCALATED, None), (1, State.CHECKPOINTED, NOW)])
def test_escalating_with_news_not_seen_parks_instead(seen: int, state: State, due: int | None) -> None:
    after = runs.committed(RUNNING, commit(change=Escalate("doubt", seen)), NOW)
    assert after == replace(RUNNING, state=state, session=None, due_ms=due, waits="doubt", changed_ms=NOW)


@pytest.mark.parametrize("state", FINAL)
def test_ending_leaves_no_owner_and_no_timer(state: State) -> None:
    after = runs.committed(RUNNING, commit(change=End(state)), NOW)  # type: ignore[arg-type]
    assert after == replace(RUNNING, state=state, session=None, due_ms=None, changed_ms=NOW)


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
    assert faults.fault_in(sound()) is None
    assert faults.fault_in(commit()) is None
    assert faults.fault_in(replace(sound(), change=Park(2**63 - 1, "wartet: ä", 0))) is None


@pytest.mark.parametrize(("wrong", "kind"), WRONG)
def test_wrong_content_is_named(wrong: Commit, kind: type[NineLivesError]) -> None:
    assert type(faults.fault_in(wrong)) is kind


def test_each_take_belongs_to_a_signal_record() -> None:
    records = [(kind, "", 1, b"", ()) for kind in (Kind.LOG, Kind.SIGNAL, Kind.RESULT, Kind.SIGNAL)]
    made = replace(commit(), records=chain.seal(1, RUNNING.head, records), takes=(8, 3))
    assert messages.taken_in(made) == [(8, 2), (3, 4)]


def test_blobs_of_records_and_keys_are_referred_to() -> None:
    made = replace(
        commit(),
        records=(Record(1, Kind.LOG, "", 1, b"", (b"a", b"b")),),
        keys=(SettleKey("k", b"", (b"c",)),),
    )
    assert runs.blobs_in(made) == [b"a", b"b", b"c"]


# Items, signals, turns ---------------------------------------------------------------------------

NEW_ITEM = NewItem(id="i", kind=ItemKind.DOUBT, step="s", digest=b"d", body=b"?", to="ops", deadline_ms=3)


def item(state: ItemState = ItemState.OPEN, **fields: object) -> Item:
    made = messages.opened(None, NEW_ITEM, "r1", 10)
    assert isinstance(made, Item)
    return replace(made, state=state, **fields)


@pytest.mark.parametrize("state", ItemState)
def test_opening_again_gives_the_known_item_or_refuses(state: ItemState) -> None:
    known = item(state, answer=b"yes", by="ada", answered_ms=11)
    assert messages.opened(known, NEW_ITEM, "r1", NOW) is known
    for other in (
        {"kind": ItemKind.BUDGET},
        {"step": "t"},
        {"digest": b"e"},
        {"body": b""},
        {"to": ""},
        {"deadline_ms": None},
    ):
        verdict = messages.opened(known, replace(NEW_ITEM, **other), "r1", NOW)
        assert isinstance(verdict, Verdict)
        assert verdict.outcome is Outcome.REFUSED
    assert isinstance(messages.opened(known, NEW_ITEM, "r2", NOW), Verdict)


def test_answering_an_open_item() -> None:
    assert messages.answered(item(), "i", b"d", b"yes", "ada", NOW) == item(
        ItemState.ANSWERED, answer=b"yes", by="ada", answered_ms=NOW
    )


def test_the_same_answer_again_is_the_item() -> None:
    known = item(ItemState.ANSWERED, answer=b"yes", by="ada", answered_ms=11)
    assert messages.answered(known, "i", b"d", b"yes", "ada", NOW) is known


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
        messages.answered(known, "i", digest, body, by, NOW)


def test_a_signal_id_means_one_signal() -> None:
    known = Signal(run="r1", number=1, name="go", id="x", body=b"1", at_ms=1)
    assert messages.same_signal(known, "go", b"1") is known
    for name, body in (("stop", b"1"), ("go", b"2")):
        with pytest.raises(IdConflict):
            messages.same_signal(known, name, body)


@given(st.lists(st.integers(0, 5), max_size=5), st.integers(0, 20))
def test_agents_take_turns_and_nobody_is_passed_over(sizes: list[int], limit: int) -> None:
    waiting = [
        [replace(ROW, id=f"{agent}.{n}", agent=str(agent), number=n) for n in range(size)]
        for agent, size in enumerate(sizes)
    ]
    due = [run for of_agent in waiting for run in of_agent]
    picked = runs.chosen(due, {str(agent): 99 for agent in range(len(sizes))}, limit)
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
        picked = runs.chosen(due, dict.fromkeys(order, 99), limit)
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
        (one,) = runs.chosen(due, dict.fromkeys("abcd", 9), 5, alone=True)
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
        runs.controlled(in_state(State.COMPLETED), control, NOW)
    told = caught.value
    assert told.what == f"the run is completed and cannot be {done}"
    assert (told.run, told.remedy) == ("r1", "Start a new run, or fork this one")


def test_a_pruned_run_cannot_be_retried() -> None:
    pruned = in_state(State.FAILED, base=1)
    with pytest.raises(RunFinished, match="cannot be retried: its journal has been pruned"):
        runs.controlled(pruned, Control.RETRY, NOW)
