"""What happens to a run's row, as pure functions: row in, row out.

The stores that can run Python inside their transaction (memory, SQLite) use these as they are; the
others say the same in their own language, and the contract suite holds them to it. None of them
does I/O: a store reads the row, calls one of these, and writes the answer in the same transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice, zip_longest

from msgspec.structs import replace

from ninelives.core import blobs, chain
from ninelives.core.errors import (
    BadName,
    BadRecord,
    IdConflict,
    LeaseLost,
    NineLivesError,
    NotSerializable,
    RunFinished,
    StaleAnswer,
    UnknownRun,
    UsageError,
)
from ninelives.core.keys import check_id
from ninelives.core.model import (
    INLINE_BYTES,
    Cause,
    Commit,
    Control,
    End,
    Escalate,
    Item,
    ItemState,
    Kind,
    NewItem,
    NewRun,
    NewSession,
    Outcome,
    Park,
    Record,
    ReserveKey,
    Run,
    Session,
    SettleKey,
    Signal,
    State,
    Verdict,
)
from ninelives.core.transitions import Event, advance

BLOB_GRACE_MS = 3_600_000
"""How long a blob that nothing refers to is kept: the time between putting it and committing."""

_INT_LIMIT = 2**63
_PRIORITY_LIMIT = 2**31
END_EVENTS = {State.COMPLETED: Event.COMPLETE, State.FAILED: Event.FAIL, State.CANCELLED: Event.CANCEL}


def created(new: NewRun, number: int, now_ms: int) -> tuple[Run, Record]:
    """Return the row and record 0 of a new run."""
    before = chain.start(new.id)
    (first,) = chain.seal(0, before, [(Kind.CREATED, "", now_ms, new.body, new.blobs)])
    run = Run(
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
        head=first.check,
        length=1,
        base=0,
        base_check=before,
        turn=0,
        turn_seq=0,
        due_ms=new.due_ms,
        waits="",
        news=0,
        deaths=0,
        death_length=0,
        created_ms=now_ms,
        changed_ms=now_ms,
    )
    return run, first


def same_or_conflict(known: Run, new: NewRun) -> Run | IdConflict:
    """Answer a creation under an id that exists: the run it names, or IdConflict."""
    if known.agent == new.agent and known.fingerprint == new.fingerprint:
        return known
    other = f"agent {known.agent!r}" if known.agent != new.agent else "other arguments"
    return IdConflict(
        f"the id exists with {other}",
        run=new.id,
        remedy="Use another id, or start it with the arguments it was created with",
    )


def is_claimable(run: Run, now_ms: int) -> bool:
    """Tell whether a worker may take the run now."""
    return (
        run.state in (State.PENDING, State.CHECKPOINTED)
        and not run.paused
        and run.due_ms is not None
        and run.due_ms <= now_ms
    )


def claimed(run: Run, session: str, now_ms: int) -> Run:
    """Give the run to a session; its epoch grows by one."""
    return replace(
        run,
        state=advance(run.state, Event.CLAIM, run=run.id),
        session=session,
        epoch=run.epoch + 1,
        due_ms=None,
        waits="",
        changed_ms=now_ms,
    )


def released(run: Run, cause: Cause, now_ms: int) -> Run:
    """Take the run from a session that is gone, and count the death unless it was told to stop."""
    deaths, death_length = run.deaths, run.death_length
    if cause is not Cause.STOPPED:
        deaths = deaths + 1 if death_length == run.length else 1
        death_length = run.length
    return replace(
        run,
        state=advance(run.state, Event.RELEASE, run=run.id),
        session=None,
        due_ms=now_ms,
        waits="",
        deaths=deaths,
        death_length=death_length,
        changed_ms=now_ms,
    )


def nudged(run: Run, now_ms: int) -> Run:
    """Tell the run that there is news; a parked one falls due."""
    due = run.due_ms
    if run.state is State.CHECKPOINTED:
        due = now_ms if due is None else min(due, now_ms)
    return replace(run, news=run.news + 1, due_ms=due, changed_ms=now_ms)


def resolved(run: Run, now_ms: int) -> Run:
    """Let an escalated run go on; any other is nudged."""
    if run.state is State.ESCALATED:
        run = replace(run, state=advance(run.state, Event.RESOLVE, run=run.id), waits="")
    return nudged(run, now_ms)


def controlled(run: Run, control: Control, now_ms: int) -> Run:
    """Carry out what was asked from outside; asking twice changes nothing more.

    Raises RunFinished when the run has ended and the control makes no sense any more.
    """
    if control is Control.RETRY:
        return _retried(run, now_ms)
    if control is Control.CANCEL:
        return _cancelled(run, now_ms)
    if run.state.is_final:
        raise finished(run, "paused" if control is Control.PAUSE else "resumed")
    paused = control is Control.PAUSE
    return run if run.paused == paused else replace(nudged(run, now_ms), paused=paused, due_ms=run.due_ms)


def _retried(run: Run, now_ms: int) -> Run:
    if run.state in (State.COMPLETED, State.CANCELLED):
        raise finished(run, "retried")
    if run.state is not State.FAILED:
        return run
    if run.base == run.length:
        raise finished(run, "retried: its journal has been pruned")
    state = advance(run.state, Event.RETRY, run=run.id)
    return nudged(replace(run, state=state, deaths=0, waits="", cancelling=False), now_ms)


def _cancelled(run: Run, now_ms: int) -> Run:
    if run.cancelling or run.state is State.CANCELLED:
        return run
    if run.state.is_final:
        raise finished(run, "cancelled")
    if run.state is State.PENDING:
        state = advance(run.state, Event.CANCEL, run=run.id)
        return replace(run, state=state, cancelling=True, due_ms=None, changed_ms=now_ms)
    return resolved(replace(run, cancelling=True, paused=False), now_ms)


def finished(run: Run, done: str) -> RunFinished:
    """Return the error for what comes after a run's end."""
    return RunFinished(
        f"the run is {run.state} and cannot be {done}",
        run=run.id,
        remedy="Start a new run, or fork this one",
    )


def repeats(run: Run, commit: Commit) -> bool:
    """Tell whether this very commit has been applied before (its answer was lost on the way)."""
    if run.epoch != commit.epoch or run.length != commit.new_length or run.head != commit.new_head:
        return False
    return run.state in _states_after(commit)


def committed(run: Run, commit: Commit, now_ms: int) -> Run | Verdict:
    """Apply a commit to its row: the row after it, or the verdict that refuses it.

    Fencing is here: only the epoch of the last claim, on a run that is running, at exactly the length
    and head that the owner knows, may write.
    """
    if run.epoch != commit.epoch or run.state is not State.RUNNING:
        return Verdict(run.id, Outcome.FENCED)
    if run.length != commit.length or run.head != commit.head:
        # The owner's epoch, but not its journal: two writers share one claim, or the store lost its tail.
        return Verdict(run.id, Outcome.FENCED)
    after = replace(run, length=commit.new_length, head=commit.new_head, changed_ms=now_ms)
    for record in commit.records:
        if record.kind is Kind.TURN:
            after = replace(after, turn=after.turn + 1, turn_seq=record.seq)
    return _changed(after, commit, now_ms) if commit.change is not None else after


def _changed(run: Run, commit: Commit, now_ms: int) -> Run:
    change = commit.change
    if isinstance(change, End):
        state = advance(run.state, END_EVENTS[change.state], run=run.id)
        return replace(run, state=state, session=None, due_ms=None, waits="")
    if isinstance(change, Escalate):
        if run.news == change.news_seen:
            state = advance(run.state, Event.ESCALATE, run=run.id)
            return replace(run, state=state, session=None, due_ms=None, waits=change.waits)
        change = Park(now_ms, change.waits, change.news_seen)
    if isinstance(change, Park):
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
        return (State.ESCALATED, State.CHECKPOINTED)
    return (State.RUNNING,)


def fault_in(commit: Commit) -> NineLivesError | None:
    """Return what is wrong with a commit's content, before anything is written; None if nothing is."""
    for seq, record in enumerate(commit.records, commit.length):
        if record.seq != seq:
            return BadRecord(f"record {record.seq} where {seq} comes next", run=commit.run, step=record.step)
        if len(record.check) != chain.CHECK_BYTES:
            return BadRecord(f"record {seq} is not sealed", run=commit.run, step=record.step)
        if len(record.body) > INLINE_BYTES:
            return BadRecord(
                f"record {seq} has a body of {len(record.body)} bytes; the limit is {INLINE_BYTES}",
                run=commit.run,
                step=record.step,
                remedy="Put the body in a blob",
            )
        if not _is_text(record.step) or not _is_count(record.at_ms):
            return BadRecord(f"record {seq} has a step or a time that cannot be kept", run=commit.run)
    return _fault_beside_records(commit) or _fault_in_keys(commit) or _fault_in_items(commit)


def _fault_beside_records(commit: Commit) -> NineLivesError | None:
    signals = sum(record.kind is Kind.SIGNAL for record in commit.records)
    if len(commit.takes) > signals:
        return BadRecord(f"{len(commit.takes)} signals taken and {signals} recorded", run=commit.run)
    if (commit.keys or commit.opens or commit.closes) and not (commit.records or commit.change):
        # Nothing in the run's row would tell this commit, made again, from its first time.
        return BadRecord("a commit with neither record nor change may not carry anything", run=commit.run)
    change = commit.change
    if isinstance(change, Park | Escalate):
        due = change.due_ms if isinstance(change, Park) else None
        if not _is_text(change.waits) or not _is_count(due or 0):
            return BadRecord("what the run waits for cannot be kept", run=commit.run)
    return None


def _fault_in_keys(commit: Commit) -> NineLivesError | None:
    for op in commit.keys:
        fault = fault_in_name(op.key, "key")
        if fault is not None:
            return fault
        if isinstance(op, ReserveKey) and not _is_text(op.action):
            return BadRecord(f"the action under key {op.key!r} cannot be kept", run=commit.run)
        if isinstance(op, SettleKey) and len(op.body) > INLINE_BYTES:
            return BadRecord(
                f"the result under key {op.key!r} is too large", run=commit.run, remedy="Put it in a blob"
            )
    return None


def _fault_in_items(commit: Commit) -> NineLivesError | None:
    for new in commit.opens:
        fault = fault_in_name(new.id, "item id")
        if fault is not None:
            return fault
        if len(new.body) > INLINE_BYTES:
            return BadRecord(
                f"the item {new.id!r} is too large", run=commit.run, remedy="Put the evidence in a blob"
            )
        if not (_is_text(new.step) and _is_text(new.to) and _is_count(new.deadline_ms or 0)):
            return BadRecord(f"the item {new.id!r} has a value that cannot be kept", run=commit.run)
    return None


def _is_text(value: str) -> bool:
    """Tell whether every store can keep the text: no NUL, no lone surrogate."""
    return "\0" not in value and (value.isascii() or not any("\ud800" <= one <= "\udfff" for one in value))


def _is_count(value: int) -> bool:
    return 0 <= value < _INT_LIMIT


def blobs_in(commit: Commit) -> list[bytes]:
    """Return the blobs that a commit refers to: those of its records, then those of its keys."""
    settled = [digest for op in commit.keys if isinstance(op, SettleKey) for digest in op.blobs]
    return [digest for record in commit.records for digest in record.blobs] + settled


def lost_blob(run: str, digest: bytes) -> BadRecord:
    """Return the error for a reference to a blob that is not there."""
    return BadRecord(f"blob {digest.hex()} is not in the store", run=run, remedy="Put the blob first")


def taken_in(commit: Commit) -> list[tuple[int, int]]:
    """Return (signal, record that takes it): the n-th take belongs to the n-th SIGNAL record."""
    records = (record.seq for record in commit.records if record.kind is Kind.SIGNAL)
    return list(zip(commit.takes, records, strict=False))


def told(run: Run, times: int) -> Run:
    """Give a run that is about to wait for keys news of those that it need not wait for."""
    return replace(run, news=run.news + times)


def opened(known: Item | None, new: NewItem, run: str, now_ms: int) -> Item | Verdict:
    """Open an item for a run: the item, the known one if it asks the same, or the verdict that refuses it."""
    item = Item(
        id=new.id,
        run=run,
        kind=new.kind,
        step=new.step,
        digest=new.digest,
        body=new.body,
        to=new.to,
        deadline_ms=new.deadline_ms,
        opened_ms=known.opened_ms if known else now_ms,
    )
    if known is None:
        return item
    if replace(known, state=ItemState.OPEN, answer=b"", by="", answered_ms=None) == item:
        return known
    fault = BadRecord(f"the item {new.id!r} exists with other content", run=run)
    return Verdict(run, Outcome.REFUSED, fault)


def answered(known: Item | None, item: str, digest: bytes, body: bytes, by: str, now_ms: int) -> Item:
    """Answer an open item; the same words of the same person again change nothing.

    Raises StaleAnswer when the item does not wait for this answer, or not any more.
    """
    if known is None:
        raise StaleAnswer(f"there is no inbox item {item!r}", remedy="List the inbox again")
    if known.digest != digest:
        raise StaleAnswer(
            f"what item {item!r} asks about is not what was shown",
            run=known.run,
            step=known.step,
            remedy="Look at it again and answer what it says now",
        )
    if known.state is ItemState.OPEN:
        return replace(known, state=ItemState.ANSWERED, answer=body, by=by, answered_ms=now_ms)
    if known.state is ItemState.ANSWERED and (known.answer, known.by) == (body, by):
        return known
    raise StaleAnswer(
        f"item {item!r} is {known.state}" + (f" by {known.by}" if known.by else ""),
        run=known.run,
        step=known.step,
        remedy="Each question counts one answer; list the inbox again",
    )


def same_signal(known: Signal, name: str, body: bytes) -> Signal:
    """Answer a signal whose id the run has seen.

    Raises IdConflict when it says something else.
    """
    if (known.name, known.body) == (name, body):
        return known
    raise IdConflict(
        f"signal {known.id!r} was sent with another name or value",
        run=known.run,
        remedy="Use another id for another signal",
    )


def turn_about(candidates: Sequence[Sequence[Run]], limit: int) -> list[Run]:
    """Pick at most `limit` runs, one from each agent's list in turn, so that no agent starves another."""
    rounds = zip_longest(*candidates)
    return list(islice((run for row in rounds for run in row if run is not None), limit))


def fault_in_new(new: NewRun) -> UsageError | None:
    """Return what is wrong with a run to be created; None if nothing is."""
    names = [(new.id, "run id"), (new.agent, "agent name"), (new.queue, "queue")]
    names += [
        (name, what) for name, what in ((new.pin, "host"), (new.parent, "parent run id")) if name is not None
    ]
    names += [(key, "label") for key in new.labels]
    names += [(value, f"value of label {key!r}") for key, value in new.labels.items()]
    for name, what in names:
        fault = fault_in_name(name, what)
        if fault is not None:
            return fault
    if len(new.body) > INLINE_BYTES:
        return NotSerializable(
            f"the arguments have {len(new.body)} bytes; the limit is {INLINE_BYTES}",
            run=new.id,
            remedy="Put them in a blob",
        )
    if not _is_count(new.due_ms) or abs(new.priority) >= _PRIORITY_LIMIT:
        return UsageError("due_ms or priority is out of range", run=new.id, remedy="Use smaller numbers")
    return None


def fault_in_session(new: NewSession) -> UsageError | None:
    """Return what is wrong with a session to be registered; None if nothing is."""
    fault = fault_in_name(new.id, "session id") or fault_in_name(new.host, "host")
    if fault is None and new.code:
        fault = fault_in_name(new.code, "code version")
    if fault is None and not (0 < new.lease_ms < _INT_LIMIT and _is_count(new.pid)):
        fault = UsageError("lease_ms or pid is out of range", remedy="Use a lease of some seconds")
    return fault


def too_large(body: bytes, what: str, run: str | None = None) -> NotSerializable | None:
    """Return the error for a body that is over the limit, of what cannot refer to a blob."""
    if len(body) <= INLINE_BYTES:
        return None
    return NotSerializable(
        f"the {what} has {len(body)} bytes; the limit is {INLINE_BYTES}",
        run=run,
        remedy="Send a reference instead",
    )


def too_large_for_a_blob(raw: bytes) -> NotSerializable | None:
    """Return the error for a content that could not be read back from a blob."""
    if len(raw) <= blobs.MAX_BYTES:
        return None
    return NotSerializable(
        f"a value has {len(raw)} bytes; the limit is {blobs.MAX_BYTES}",
        remedy="Keep it elsewhere and return where it is",
    )


def unknown_run(run: str) -> UnknownRun:
    """Return the error for an id that names no run."""
    return UnknownRun("there is no such run", run=run, remedy="Check the id; a pruned run may be forgotten")


def lease_lost(session: str, known: Session | None) -> LeaseLost | None:
    """Return why a session, as it is read now, may not act any more; None if it may."""
    if known is None:
        return LeaseLost(f"there is no session {session!r}", remedy="Register a session first")
    if known.ended_ms is not None:
        return LeaseLost(
            f"session {session!r} has ended ({known.cause})", remedy="End this process and start anew"
        )
    if known.left_ms > 0:
        return None
    return LeaseLost(
        f"the lease of session {session!r} has run out",
        remedy="Its runs may be another's by now: end this process and start anew",
    )


def fault_in_name(name: str, what: str) -> UsageError | None:
    """Return what is wrong with a name that a store is to keep; it must be in normal form already."""
    try:
        if check_id(name, what) == name:
            return None
    except UsageError as error:
        return error
    return BadName(f"the {what} {name!r} is not in Unicode's normal form", remedy="Normalise it first (NFC)")
