"""Validation of what callers hand to a store, before anything is written.

Each function returns the error, or None when the input is valid; the store returns or raises the error.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ninelives.core.errors import (
    BadName,
    BadRecord,
    LeaseLost,
    NineLivesError,
    NotSerializable,
    StoreBroken,
    UnknownRun,
    UsageError,
)
from ninelives.core.governance.accounts import AMOUNT_LIMIT, METERS_AT_MOST, Reserve
from ninelives.core.ids import check_id
from ninelives.core.journal import chain
from ninelives.core.model.commit import Commit, Escalate, Park
from ninelives.core.model.document import HALTS
from ninelives.core.model.key import ReserveKey, SettleKey
from ninelives.core.model.log_entry import NewEntry
from ninelives.core.model.run import INLINE_BYTES, Kind, NewRun
from ninelives.core.model.session import Evidence, NewSession, Session
from ninelives.core.values import blobs

INT_LIMIT = 2**63
_PRIORITY_LIMIT = 2**31


def fault_in(commit: Commit) -> NineLivesError | None:
    """Return what is wrong with a commit's content; None if nothing is."""
    if commit.is_lone:
        return None
    head = commit.head
    for seq, record in enumerate(commit.records, commit.length):
        if record.seq != seq:
            return BadRecord(
                f"got record {record.seq}, expected record {seq}", run=commit.run, step=record.step
            )
        if len(record.body) > INLINE_BYTES:
            return BadRecord(
                f"record {seq} has a body of {len(record.body)} bytes; the limit is {INLINE_BYTES}",
                run=commit.run,
                step=record.step,
                remedy="Put the body in a blob",
            )
        if not is_text(record.step) or not _is_count(record.at_ms):
            return BadRecord(f"record {seq} has a step or a time that cannot be kept", run=commit.run)
        if not commit.is_sealed and not chain.follows(head, record):
            return BadRecord(f"record {seq} is not sealed", run=commit.run, step=record.step)
        # A record without an epoch would be checked by the rule
        # of schema 1, which does not cover the newer columns.
        if record.epoch is None:
            return BadRecord(f"record {seq} does not have the epoch that wrote it", run=commit.run)
        head = record.check
    carries = commit.keys or commit.opens or commit.closes or commit.takes or commit.change
    if not (carries or commit.requires or commit.accounts):
        return None
    fault = _fault_beside_records(commit) or (_fault_in_keys(commit) if commit.keys else None)
    fault = fault or (_fault_in_items(commit) if commit.opens else None)
    return fault or (_fault_in_documents(commit) if commit.requires or commit.accounts else None)


def _fault_beside_records(commit: Commit) -> NineLivesError | None:
    signals = sum(record.kind is Kind.SIGNAL for record in commit.records)
    if len(commit.takes) > signals:
        return BadRecord(f"{len(commit.takes)} signals taken and {signals} recorded", run=commit.run)
    carries = commit.keys or commit.opens or commit.closes or commit.requires or commit.accounts
    if carries and not (commit.records or commit.change):
        # The run's row would not change, so a repetition of this commit could not be recognised.
        return BadRecord("a commit with neither record nor change may not carry anything", run=commit.run)
    change = commit.change
    if isinstance(change, Park | Escalate):
        due = change.due_ms if isinstance(change, Park) else None
        if not is_text(change.waits) or not _is_count(due or 0):
            return BadRecord("what the run waits for cannot be kept", run=commit.run)
    return None


def _fault_in_keys(commit: Commit) -> NineLivesError | None:
    for op in commit.keys:
        if (fault := fault_in_name(op.key, "key")) is not None:
            return fault
        if isinstance(op, ReserveKey) and not is_text(op.action):
            return BadRecord(f"the action under key {op.key!r} cannot be kept", run=commit.run)
        if isinstance(op, SettleKey) and len(op.body) > INLINE_BYTES:
            return BadRecord(
                f"the result under key {op.key!r} is too large", run=commit.run, remedy="Put it in a blob"
            )
    return None


def _fault_in_items(commit: Commit) -> NineLivesError | None:
    for new in commit.opens:
        if (fault := fault_in_name(new.id, "item id")) is not None:
            return fault
        if len(new.body) > INLINE_BYTES:
            return BadRecord(
                f"the item {new.id!r} is too large", run=commit.run, remedy="Put the evidence in a blob"
            )
        if not (is_text(new.step) and is_text(new.to) and _is_count(new.deadline_ms or 0)):
            return BadRecord(f"the item {new.id!r} has a value that cannot be kept", run=commit.run)
    return None


def _fault_in_documents(commit: Commit) -> NineLivesError | None:
    names = [one.name for one in commit.requires] + [op.account for op in commit.accounts]
    if (wrong := _fault_in_names([(name, "document's name") for name in names])) is not None:
        return wrong
    for one in commit.requires:
        if not 0 <= one.version < AMOUNT_LIMIT:
            return BadRecord(f"version {one.version} of {one.name!r} cannot be required", run=commit.run)
    for op in commit.accounts:
        # An account's body in its place would mean: nothing is halted.
        if op.account == HALTS:
            return BadRecord(f"the document {HALTS!r} cannot be an account", run=commit.run)
        parts = (op.amounts, op.limits) if isinstance(op, Reserve) else (op.held, op.spent)
        for part in parts:
            if (fault := _fault_in_amounts(commit, op.account, part)) is not None:
                return fault
    return None


def _fault_in_amounts(commit: Commit, account: str, amounts: Mapping[str, int]) -> NineLivesError | None:
    if len(amounts) > METERS_AT_MOST:
        return BadRecord(f"{len(amounts)} meters of account {account!r} are too many", run=commit.run)
    for meter, amount in amounts.items():
        if (fault := fault_in_name(meter, "meter")) is not None:
            return fault
        if not 0 <= amount < AMOUNT_LIMIT:
            return BadRecord(f"{amount} {meter} cannot be kept in account {account!r}", run=commit.run)
    return None


def is_text(value: str) -> bool:
    """Return whether every store can keep the text: no NUL, no lone surrogate."""
    return "\0" not in value and (value.isascii() or not any("\ud800" <= one <= "\udfff" for one in value))


def _is_count(value: int) -> bool:
    return 0 <= value < INT_LIMIT


def lost_blob(run: str, digest: bytes) -> BadRecord:
    """Return the error for a reference to a missing blob."""
    return BadRecord(f"blob {digest.hex()} is not in the store", run=run, remedy="Put the blob first")


def fault_in_new(new: NewRun) -> UsageError | None:
    """Return what is wrong with a new run; None if nothing is."""
    names = [(new.id, "run id"), (new.agent, "agent name"), (new.queue, "queue")]
    names += [
        (name, what) for name, what in ((new.pin, "host"), (new.parent, "parent run id")) if name is not None
    ]
    names += [(key, "label") for key in new.labels]
    names += [(value, f"value of label {key!r}") for key, value in new.labels.items()]
    if (fault := _fault_in_names(names)) is not None:
        return fault
    if len(new.body) > INLINE_BYTES:
        return NotSerializable(
            f"the arguments have {len(new.body)} bytes; the limit is {INLINE_BYTES}",
            run=new.id,
            remedy="Put them in a blob",
        )
    if not _is_count(new.due_ms) or abs(new.priority) >= _PRIORITY_LIMIT:
        return UsageError("due_ms or priority is out of range", run=new.id, remedy="Use smaller numbers")
    return _fault_in_prefix(new)


def _fault_in_prefix(new: NewRun) -> UsageError | None:
    for record in new.prefix:
        if record.kind in (Kind.CREATED, Kind.TURN, Kind.END):
            return UsageError(f"a run cannot start with a record of kind {record.kind}", run=new.id)
        if len(record.body) > INLINE_BYTES or not is_text(record.step) or not _is_count(record.at_ms):
            return UsageError("a record that the run starts with cannot be kept", run=new.id)
    return None


def fault_in_session(new: NewSession) -> UsageError | None:
    """Return what is wrong with a new session; None if nothing is."""
    names = [(new.id, "session id"), (new.host, "host")]
    names += [
        (name, what)
        for name, what in ((new.code, "code version"), (new.keeper, "keeper's session id"))
        if name
    ]
    fault = _fault_in_names([*names, *((agent, "agent name") for agent in new.agents)])
    if fault is None and not (0 < new.lease_ms < INT_LIMIT and _is_count(new.pid)):
        fault = UsageError("lease_ms or pid is out of range", remedy="Use a lease of some seconds")
    return fault


def fault_in_evidence(evidence: Mapping[str, Evidence]) -> UsageError | None:
    """Return what is wrong with the evidence of sessions' ends; None if nothing is."""
    for session, seen in evidence.items():
        texts = (seen.note, *seen.log)
        if not all(is_text(text) for text in texts) or sum(map(len, texts)) > INLINE_BYTES // 4:
            return UsageError(
                f"the evidence of the end of session {session!r} cannot be kept",
                remedy=f"Give plain text of at most {INLINE_BYTES // 4} characters in all",
            )
    return None


def fault_in_log(new: Sequence[NewEntry]) -> UsageError | None:
    """Return what is wrong with entries for the recovery log; None if nothing is."""
    for one in new:
        names = [(one.session, "session id"), *([(one.run, "run id")] if one.run else ())]
        if (fault := _fault_in_names(names)) is not None:
            return fault
        if len(one.body) > INLINE_BYTES:
            return NotSerializable("an entry of the recovery log is too large", run=one.run)
    return None


def too_large(body: bytes, what: str, run: str | None = None) -> NotSerializable | None:
    """Return the error for a body over the limit, where no blob may replace it; None if it fits."""
    if len(body) <= INLINE_BYTES:
        return None
    return NotSerializable(
        f"the {what} has {len(body)} bytes; the limit is {INLINE_BYTES}",
        run=run,
        remedy="Send a reference instead",
    )


def too_large_for_a_blob(raw: bytes) -> NotSerializable | None:
    """Return the error for content too large for a blob; None if it fits."""
    if len(raw) <= blobs.MAX_BYTES:
        return None
    return NotSerializable(
        f"a value has {len(raw)} bytes; the limit is {blobs.MAX_BYTES}",
        remedy="Store it elsewhere and return a reference to it",
    )


def not_owned(run: str) -> LeaseLost:
    """Return the error for a call that only a run's owner may make."""
    return LeaseLost("another worker owns the run now", run=run, remedy="Nothing to do: it continues there")


def unknown_run(run: str) -> UnknownRun:
    """Return the error for an id that names no run."""
    return UnknownRun("there is no such run", run=run, remedy="Check the id; a pruned run may be forgotten")


def vanished(what: str) -> StoreBroken:
    """Return the error for a store that was emptied or replaced while this process used it."""
    return StoreBroken(
        f"the store that this process served is gone: {what}",
        remedy="Nothing is started on an empty store. Restore it from a backup; if it was emptied on purpose,"
        " start the workers again",
    )


def lease_lost(session: str, known: Session | None) -> LeaseLost | None:
    """Return why a session, as just read, may no longer act; None if it may."""
    if known is None:
        return LeaseLost(f"there is no session {session!r}", remedy="Register a session first")
    if known.ended_ms is not None:
        return LeaseLost(f"session {session!r} has ended ({known.cause})", remedy="Restart this process")
    if known.left_ms > 0:
        return None
    return LeaseLost(
        f"the lease of session {session!r} has run out",
        remedy="Other workers may own its runs by now: restart this process",
    )


def _fault_in_names(names: Iterable[tuple[str, str]]) -> UsageError | None:
    faults = (fault_in_name(name, what) for name, what in names)
    return next((fault for fault in faults if fault is not None), None)


def fault_in_name(name: str, what: str) -> UsageError | None:
    """Return what is wrong with a name for a store, which must be in NFC already; None if nothing is."""
    try:
        if check_id(name, what) == name:
            return None
    except UsageError as error:
        return error
    return BadName(f"the {what} {name!r} is not in Unicode's normal form", remedy="Normalise it first (NFC)")
