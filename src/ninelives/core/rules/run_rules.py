"""The rules for a run's row, as pure functions: row in, row out.

A store reads the row, calls one of these functions, and writes the result in the same transaction. Where a
server executes a rule itself (SQL, Lua), the contract suite holds it to the function here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from ninelives.core.errors import IdConflict, RunFinished, RunMoved, UsageError
from ninelives.core.journal import chain
from ninelives.core.model import totals
from ninelives.core.model.commit import Commit, End, Escalate, Outcome, Park, Verdict
from ninelives.core.model.key import SettleKey
from ninelives.core.model.run import Control, Kind, NewRun, Record, RunRow, State
from ninelives.core.model.session import Evidence, Fate, Session
from ninelives.core.model.transitions import Event, advance
from ninelives.core.rules.deaths import is_suspect, survived

BLOB_GRACE_MS = 3_600_000
"""How long a blob that nothing refers to is kept: the time between putting it and committing."""

END_EVENTS = {State.COMPLETED: Event.COMPLETE, State.FAILED: Event.FAIL, State.CANCELLED: Event.CANCEL}


def created(
    new: NewRun, number: int, now_ms: int, session: str | None = None
) -> tuple[RunRow, tuple[Record, ...]]:
    """Return a new run's row and first records; a run that is due goes to the session, if one is given."""
    before = chain.start(new.id)
    drafts: list[chain.Draft] = [(Kind.CREATED, "", now_ms, new.body, new.blobs)]
    drafts += map(chain.draft_of, new.prefix)
    records = chain.seal(0, before, drafts)
    summed = totals.summed(records)
    run = RunRow(
        id=new.id,
        number=number,
        agent=new.agent,
        fingerprint=new.fingerprint,
        queue=new.queue,
        pin=new.pin,
        priority=new.priority,
        labels=new.labels,
        parent=new.parent,
        state=State.PENDING,
        paused=False,
        cancelling=False,
        epoch=0,
        session=None,
        head=records[-1].check,
        length=len(records),
        base=0,
        base_check=before,
        turn=0,
        turn_seq=0,
        due_ms=new.due_ms,
        waits="",
        news=0,
        deaths=0,
        death_length=0,
        solo_deaths=0,
        is_alone=False,
        left_by=None,
        created_ms=now_ms,
        changed_ms=now_ms,
        steps=summed.steps,
        progress=summed.progress,
    )
    if session is not None and is_claimable(run, now_ms):
        run = claimed(run, session, now_ms)
    return run, records


def same_or_conflict(known: RunRow, new: NewRun) -> RunRow | IdConflict:
    """Return the run that already has this id, or IdConflict if agent or arguments differ."""
    if known.agent == new.agent and known.fingerprint == new.fingerprint:
        return known
    other = f"agent {known.agent!r}" if known.agent != new.agent else "other arguments"
    return IdConflict(
        f"the id exists with {other}",
        run=new.id,
        remedy="Use another id, or start it with the arguments it was created with",
    )


def blobs_of(new: NewRun) -> list[bytes]:
    """Return the blobs that a new run refers to."""
    return [*new.blobs, *(digest for record in new.prefix for digest in record.blobs)]


def refuses_children(parent: RunRow | None, child: str) -> RunFinished | None:
    """Return the error for a child of a run that has ended: no parent would await or cancel it."""
    if parent is None or not (parent.state.is_final or parent.state is State.MOVED):
        return None
    return RunFinished(
        f"the run {parent.id!r} is {parent.state} and cannot have a child any more",
        run=child,
        remedy="Start it as an independent run",
    )


def is_claimable(run: RunRow, now_ms: int) -> bool:
    """Return whether a worker may claim the run now."""
    return (
        run.state in (State.PENDING, State.CHECKPOINTED)
        and not run.paused
        and run.due_ms is not None
        and run.due_ms <= now_ms
    )


def claimed(run: RunRow, session: str, now_ms: int) -> RunRow:
    """Give the run to a session; its epoch grows by one."""
    return replace(
        run,
        state=advance(run.state, Event.CLAIM, run=run.id),
        session=session,
        epoch=run.epoch + 1,
        due_ms=None,
        waits="",
        is_alone=is_suspect(run),
        changed_ms=now_ms,
    )


def fate_of(session: Session, *, is_dropped: bool, is_held: bool = False) -> Fate:
    """Return what is known of a session's process and of the processes it started.

    A dropped lock proves that the process is gone. If it has a keeper (a supervisor), only the keeper knows
    whether the processes that it started are gone too. A process that still holds the lock of a session that
    has ended is alive, and may finish what it began.
    """
    if session.evidence is not None and session.evidence.is_gone:
        return Fate.GONE
    if is_dropped and not session.keeper:
        return Fate.GONE
    # The lease ran out, not the process: a worker that was stopped for long holds its lock and may go on.
    if session.ended_ms is not None and is_held:
        return Fate.LIVES
    if is_dropped or session.ended_ms is not None or session.left_ms <= 0:
        return Fate.UNKNOWN
    return Fate.LIVES


def proved(session: Session, evidence: Evidence | None) -> Session:
    """Add the evidence that an ended session is gone, if that was not known before."""
    known = session.evidence is not None and session.evidence.is_gone
    if evidence is None or not evidence.is_gone or known:
        return session
    return replace(session, evidence=evidence)


def nudged(run: RunRow, now_ms: int) -> RunRow:
    """Count news for the run; a parked run falls due."""
    due = run.due_ms
    if run.state is State.CHECKPOINTED:
        # Never later than it was: news must not put off a run that is due already.
        due = now_ms if due is None else min(due, now_ms)
    return replace(run, news=run.news + 1, due_ms=due, changed_ms=now_ms)


def resolved(run: RunRow, now_ms: int) -> RunRow:
    """Make an escalated run due again; nudge any other."""
    if run.state is State.ESCALATED:
        run = replace(run, state=advance(run.state, Event.RESOLVE, run=run.id), waits="")
    return nudged(run, now_ms)


def controlled(run: RunRow, control: Control, now_ms: int) -> RunRow:
    """Apply a control; repeating it changes nothing more.

    Raises RunFinished when the run has ended and cannot take this control; UsageError.
    """
    if type(control) is not Control:
        known = ", ".join(one for one in Control if one is not Control.WAKE)  # that is no person's
        raise UsageError(f"{control!r} is no control", run=run.id, remedy=f"It is one of {known}")
    if run.state is State.MOVED:
        raise moved_away(run, f"given the control {control.value!r}")
    if control is Control.RETRY:
        return _retried(run, now_ms)
    if control is Control.WAKE:
        is_waiting = run.state is State.CHECKPOINTED and (run.due_ms is None or run.due_ms > now_ms)
        return nudged(run, now_ms) if is_waiting else run
    if control is Control.CANCEL:
        return _cancelled(run, now_ms)
    if run.state.is_final:
        raise finished(run, "paused" if control is Control.PAUSE else "resumed")
    paused = control is Control.PAUSE
    # `due_ms` stays: pausing must not make a timer ring early, nor resuming lose it.
    return run if run.paused == paused else replace(nudged(run, now_ms), paused=paused, due_ms=run.due_ms)


def _retried(run: RunRow, now_ms: int) -> RunRow:
    if run.state in (State.COMPLETED, State.CANCELLED):
        raise finished(run, "retried")
    if run.state is not State.FAILED:
        return run
    # Without its journal the retry would do everything again.
    if run.base == run.length:
        raise finished(run, "retried: its journal has been pruned")
    state = advance(run.state, Event.RETRY, run=run.id)
    return nudged(replace(run, state=state, deaths=0, solo_deaths=0, waits="", cancelling=False), now_ms)


def _cancelled(run: RunRow, now_ms: int) -> RunRow:
    if run.cancelling or run.state is State.CANCELLED:
        return run
    if run.state.is_final:
        raise finished(run, "cancelled")
    # No worker has begun it, so there is nothing to undo: it ends here and now.
    if run.state is State.PENDING:
        state = advance(run.state, Event.CANCEL, run=run.id)
        return replace(run, state=state, cancelling=True, due_ms=None, changed_ms=now_ms)
    # Unpaused: a paused run would never get to undo what it has done.
    return resolved(replace(run, cancelling=True, paused=False), now_ms)


def takes_along(run: RunRow) -> bool:
    """Return whether a run that has just ended cancels its children."""
    return run.state in (State.FAILED, State.CANCELLED)


def finished(run: RunRow, done: str) -> RunFinished:
    """Return the error for a control that comes after the run's end."""
    return RunFinished(
        f"the run is {run.state} and cannot be {done}",
        run=run.id,
        remedy="Start a new run, or fork this one",
    )


def moved_away(run: RunRow, done: str) -> RunMoved:
    """Return the error for a call that reaches a run where it no longer is."""
    return RunMoved(
        f"the run is {run.waits} and cannot be {done} here",
        run=run.id,
        remedy="Use the store where it is; `ninelives move` finishes a move, `move --back` calls it back",
    )


def repeats(run: RunRow, commit: Commit) -> bool:
    """Return whether this same commit has been applied before (the store's answer was lost)."""
    if run.epoch != commit.epoch or run.length != commit.new_length or run.head != commit.new_head:
        return False
    # Without records, length and head are those of before: only the state says whether the change was made.
    return run.state in _states_after(commit)


def committed(run: RunRow, commit: Commit, now_ms: int) -> RunRow | Verdict:
    """Apply a commit to its row: return the new row, or the verdict that refuses it.

    This is the fencing: only a commit with the epoch of the last claim, on a running run, at exactly the
    length and head that the owner knows, is applied.
    """
    if run.epoch != commit.epoch or run.state is not State.RUNNING:
        return Verdict(run.id, Outcome.FENCED)
    if run.length != commit.length or run.head != commit.head:
        # The epoch matches, the journal does not: two writers share one claim, or the store lost records.
        return Verdict(run.id, Outcome.FENCED)
    after = replace(
        run,
        length=commit.new_length,
        head=commit.new_head,
        changed_ms=now_ms,
        # It never shrinks: what was visible once still rests on these records.
        effect_length=max(run.effect_length, effect_length_of(commit)),
    )
    if commit.tally is not None:
        after = totals.with_tally(after, commit.tally)
    for record in commit.records:
        if record.kind is Kind.TURN:
            after = replace(after, turn=after.turn + 1, turn_seq=record.seq)
    return _changed(after, commit, now_ms) if commit.change is not None else after


def _changed(run: RunRow, commit: Commit, now_ms: int) -> RunRow:
    change = commit.change
    if run.deaths or run.left_by is not None:
        run = survived(run)
    if isinstance(change, End):
        state = advance(run.state, END_EVENTS[change.state], run=run.id)
        return replace(run, state=state, session=None, due_ms=None, waits="")
    if isinstance(change, Escalate):
        if run.news == change.news_seen:
            state = advance(run.state, Event.ESCALATE, run=run.id)
            return replace(run, state=state, session=None, due_ms=None, waits=change.waits)
        # News came since the owner read it, perhaps the very answer:
        # the run must read it, not wait for a person.
        change = Park(now_ms, change.waits, change.news_seen)
    if isinstance(change, Park):
        # No wake-up can fall between the owner's last read and the park (decision 7).
        due = change.due_ms if run.news == change.news_seen else now_ms
        state = advance(run.state, Event.PARK, run=run.id)
        return replace(run, state=state, session=None, due_ms=due, waits=change.waits)
    return run


def _states_after(commit: Commit) -> tuple[State, ...]:
    change = commit.change
    if isinstance(change, End):
        return (State(change.state),)
    if isinstance(change, Park):
        return (State.CHECKPOINTED,)
    if isinstance(change, Escalate):
        # With unseen news an escalation becomes a park: both are this commit, applied.
        return (State.ESCALATED, State.CHECKPOINTED)
    return (State.RUNNING,)


def blobs_in(commit: Commit) -> list[bytes]:
    """Return the blobs that a commit refers to: those of its records, then those of its keys."""
    if commit.is_lone:
        return []
    found = [digest for record in commit.records if record.blobs for digest in record.blobs]
    if commit.keys:
        found += [digest for op in commit.keys if isinstance(op, SettleKey) for digest in op.blobs]
    return found


def effect_length_of(commit: Commit) -> int:
    """Return how many records must be kept after a commit: its own too, if they have a visible effect."""
    if commit.is_lone:
        return commit.effect_length
    if commit.keys or commit.opens or commit.closes or commit.takes or emits(commit):
        return commit.new_length
    return commit.effect_length


def emits(commit: Commit) -> bool:
    """Return whether a commit has output, which readers may be waiting for."""
    if commit.is_lone:
        return False
    for record in commit.records:  # noqa: SIM110 (the hot path)
        if record.kind is Kind.OUTPUT:
            return True
    return False


def wakes(commit: Commit, *, needless: int, has_waiters: bool) -> bool:
    """Return whether a commit wakes workers: a run becomes due, has news, asks a person, or ends.

    A key that is reserved, or settled while no run waits for it, concerns no other run.
    """
    return commit.change is not None or bool(commit.opens) or needless > 0 or has_waiters


def with_news(run: RunRow, times: int) -> RunRow:
    """Count news for keys that became free before the run started to wait."""
    return replace(run, news=run.news + times)


def chosen(
    due: Iterable[RunRow], agents: Mapping[str, int], limit: int, *, solo: bool = False
) -> list[RunRow]:
    """Pick at most `limit` of the due runs, and of each agent at most as many as `agents` says.

    Order: by priority; at equal priority, round robin over the agents in the order of the mapping; within an
    agent, by due time, then by age. The caller puts the agents first that it has not been given for longest.
    Then an agent waits for at most one run of each other agent, however small the limit.

    `solo`: pick only the suspect that has waited longest, whatever its agent and priority. A suspect that
    kills its worker falls due again at that moment, so it comes after all others and cannot starve them.
    """
    if solo:
        fitting = (run for run in due if agents.get(run.agent, 0) > 0)
        return sorted(fitting, key=lambda run: (run.due_ms or 0, run.number))[: max(0, min(limit, 1))]
    positions = {agent: position for position, agent in enumerate(agents)}
    given: Counter[str] = Counter()
    turns: Counter[tuple[str, int]] = Counter()
    ranked: list[tuple[int, int, int, RunRow]] = []
    for run in sorted(due, key=_urgency):
        if given[run.agent] < agents.get(run.agent, 0):
            given[run.agent] += 1
            turns[run.agent, run.priority] += 1
            ranked.append((-run.priority, turns[run.agent, run.priority], positions[run.agent], run))
    ranked.sort(key=lambda one: one[:3])
    return [run for *_, run in ranked[: max(0, limit)]]


def _urgency(run: RunRow) -> tuple[int, int, int]:
    return -run.priority, run.due_ms or 0, run.number
