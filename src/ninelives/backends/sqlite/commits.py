"""The write path: many runs in one transaction, a verdict for each.

A commit that only appends takes two statements: a conditional update of the run's row, which is the
fence, and the insert. All others run in a savepoint of their own, so that a refused one leaves no trace.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain as joined

from msgspec.structs import replace

from ninelives.backends.sqlite import rows
from ninelives.backends.sqlite.transaction import (
    Transaction,
    append,
    decoding,
    end_run,
    find_key,
    find_run,
    missing_blob,
    refer,
    save_key,
    save_run,
)
from ninelives.core import dedup, runs
from ninelives.core.errors import BadRecord, NineLivesError, UnknownRun, UsageError
from ninelives.core.keys import check_id, check_key
from ninelives.core.model import (
    INLINE_BYTES,
    Commit,
    Item,
    ItemState,
    Key,
    KeyOp,
    KeyState,
    NewItem,
    Outcome,
    ReserveKey,
    Run,
    SettleKey,
    State,
    Verdict,
    WaitKey,
)


class _Refusal(Exception):
    """Carries a verdict out of a savepoint."""

    def __init__(self, verdict: Verdict) -> None:
        self.verdict = verdict


def commit(tx: Transaction, batch: Sequence[Commit]) -> list[Verdict]:
    """Apply a batch; see `Store.commit`."""
    if len({one.run for one in batch}) != len(batch):
        raise UsageError(
            "a run occurs twice in one batch", remedy="Join its commits, or send them one after the other"
        )
    return [_apply(tx, one) for one in batch]


def _apply(tx: Transaction, one: Commit) -> Verdict:
    fault = runs.fault_in(one) or _missing(tx, one)
    if fault is not None:
        return Verdict(one.run, Outcome.REFUSED, fault)
    if one.is_plain and one.records:
        values = (one.new_head, one.new_length, tx.now_ms, one.run, one.epoch, one.length, one.head)
        row = tx.one("append_plain", values)
        if row is not None:
            append(tx, row[0], one.records)
            return Verdict(one.run, Outcome.COMMITTED)
    run = find_run(tx, one.run)
    if run is None:
        return Verdict(one.run, Outcome.REFUSED, UnknownRun("there is no such run", run=one.run))
    if runs.repeats(run, one):
        return Verdict(one.run, Outcome.COMMITTED)
    return _apply_whole(tx, run, one)


def _apply_whole(tx: Transaction, run: Run, one: Commit) -> Verdict:
    fenced = runs.committed(run, one, tx.now_ms)
    if isinstance(fenced, Verdict):
        return fenced
    tx.cursor.execute("SAVEPOINT one")
    try:
        _write(tx, run, one)
    except _Refusal as refusal:
        tx.cursor.execute("ROLLBACK TO one")
        return refusal.verdict
    finally:
        tx.cursor.execute("RELEASE one")
    return Verdict(one.run, Outcome.COMMITTED)


def _write(tx: Transaction, run: Run, one: Commit) -> None:
    taken = one.length if not one.records else one.records[-1].seq
    for number in one.takes:
        if not tx.all("take_signal", (taken, run.number, number)):
            raise _Refusal(Verdict(run.id, Outcome.STALE))
    for item in one.closes:
        if not tx.all("close_item", (item, run.id)):
            raise _Refusal(Verdict(run.id, Outcome.STALE))
    for new in one.opens:
        _open_item(tx, run, new)
    for op in one.keys:
        if not _operate(tx, run, op):
            run = replace(run, news=run.news + 1)
    after = runs.committed(run, one, tx.now_ms)
    if isinstance(after, Verdict):
        raise _Refusal(after)
    append(tx, run.number, one.records)
    save_run(tx, after)
    if after.state.is_final:
        end_run(tx, after)
    if after.state is not State.RUNNING:
        tx.wakes = True


def _open_item(tx: Transaction, run: Run, new: NewItem) -> None:
    try:
        fault: NineLivesError | None = (
            None if check_id(new.id, "item id") == new.id else _not_nfc(new.id, run.id)
        )
    except UsageError as error:
        fault = error
    if fault is None and len(new.body) > INLINE_BYTES:
        fault = BadRecord(
            f"the item {new.id!r} is too large", run=run.id, remedy="Put the evidence in a blob"
        )
    if fault is not None:
        raise _Refusal(Verdict(run.id, Outcome.REFUSED, fault))
    row = tx.one("read_item", (new.id,))
    if row is not None:
        with decoding("an inbox item", run.id):
            known = rows.item_of(row)
        if not _same_item(known, new, run.id):
            fault = BadRecord(f"the item {new.id!r} exists with other content", run=run.id)
            raise _Refusal(Verdict(run.id, Outcome.REFUSED, fault))
        return
    values = (new.id, run.id, new.kind.value, new.step, new.digest, new.body, new.to, new.deadline_ms)
    tx.do("insert_item", (*values, tx.now_ms))


def _same_item(known: Item, new: NewItem, run: str) -> bool:
    shown = (known.run, known.kind, known.step, known.digest, known.body, known.to, known.deadline_ms)
    asked = (run, new.kind, new.step, new.digest, new.body, new.to, new.deadline_ms)
    return shown == asked and known.state is ItemState.OPEN


def _operate(tx: Transaction, run: Run, op: KeyOp) -> bool:
    """Apply one key operation; False when a key to wait for is not held any more."""
    known = find_key(tx, _checked(op.key, run.id))
    if isinstance(op, WaitKey):
        held = dedup.is_held(known, run.id)
        if held:
            tx.do("add_waiter", (op.key, run.id))
        return held
    after: Key | Verdict
    if isinstance(op, ReserveKey):
        after = dedup.reserved(known, op, run.id, tx.now_ms)
    else:
        after = dedup.changed(known, op, run.id, tx.now_ms)
    if isinstance(after, Verdict):
        raise _Refusal(after)
    if after is not known:
        save_key(tx, after)
        if after.state is KeyState.SETTLED:
            refer(tx, run.number, after.blobs)
    return True


def _checked(key: str, run: str) -> str:
    try:
        if check_key(key) == key:
            return key
        fault: UsageError = _not_nfc(key, run)
    except UsageError as error:
        fault = error
    raise _Refusal(Verdict(run, Outcome.REFUSED, fault))


def _not_nfc(name: str, run: str) -> UsageError:
    return UsageError(f"{name!r} is not in Unicode's normal form", run=run, remedy="Normalise it (NFC)")


def _missing(tx: Transaction, one: Commit) -> BadRecord | None:
    for op in one.keys:
        if isinstance(op, SettleKey) and len(op.body) > INLINE_BYTES:
            return BadRecord(
                f"the result under key {op.key!r} is too large", run=one.run, remedy="Put it in a blob"
            )
    recorded = (record.blobs for record in one.records)
    settled = (op.blobs for op in one.keys if isinstance(op, SettleKey))
    return missing_blob(tx, joined.from_iterable(joined(recorded, settled)), one.run)
