"""The write path: many runs in one transaction, one verdict for each.

A commit that only appends, or that completes its run, takes two statements: a conditional update of the run's
row, which is the fence, and the insert. Each is one call of the driver for the whole batch. Every other
commit runs in a savepoint, so that a refused one leaves no trace.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from msgspec.structs import astuple

from ninelives.core.errors import NineLivesError, UsageError
from ninelives.core.model.commit import Commit, Outcome, Verdict
from ninelives.core.model.inbox import NewItem
from ninelives.core.model.key import Key, KeyOp, ReserveKey, WaitKey
from ninelives.core.model.run import RunRow
from ninelives.core.rules import dedup, inbox_rules, run_rules, validation
from ninelives.stores.shared import rows
from ninelives.stores.sqlite import checks
from ninelives.stores.sqlite.transaction import (
    Transaction,
    append_all,
    decoding,
    end_run,
    find_key,
    find_run,
    lost_blob,
    notify_waiters,
    refer,
    save_key,
    save_run,
)


class _Refusal(Exception):
    """Carries a verdict out of a savepoint."""

    def __init__(self, verdict: Verdict) -> None:
        self.verdict = verdict


def commit(tx: Transaction, batch: Sequence[Commit]) -> list[Verdict]:
    """Apply a batch; see `Store.commit`."""
    if len({one.run for one in batch}) != len(batch):
        raise UsageError("a run occurs twice in one batch", remedy="Merge its commits, or send them apart")
    plain: list[Commit] = []
    ending: list[Commit] = []
    refused: dict[str, NineLivesError] = {}
    for one in batch:
        if one.is_lone:
            plain.append(one)
        elif (fault := _fault(tx, one)) is not None:
            refused[one.run] = fault
        elif one.records and one.is_plain:
            plain.append(one)
        elif one.records and one.is_plain_end:
            ending.append(one)
    done = _append_plain(tx, plain) | _end_plain(tx, ending)
    return [
        Verdict(one.run, Outcome.COMMITTED)
        if one.run in done
        else Verdict(one.run, Outcome.REFUSED, refused[one.run])
        if one.run in refused
        else _apply(tx, one)
        for one in batch
    ]


def _fault(tx: Transaction, one: Commit) -> NineLivesError | None:
    return validation.fault_in(one) or lost_blob(tx, run_rules.blobs_in(one), one.run)


def _append_plain(tx: Transaction, plain: Sequence[Commit]) -> dict[str, int]:
    """Append to the runs that are their owners' and as their owners know them; returns their numbers."""
    done = _append_known(tx, plain)
    others = [one for one in plain if one.run not in done]
    if others:
        done |= dict(tx.many("append_plain", [_fence(tx, one) for one in others]))
    if done:
        _append(tx, done, plain)
    return done


def _append_known(tx: Transaction, plain: Sequence[Commit]) -> dict[str, int]:
    """Append where this process knows the changing columns: the check is computed here, not in SQL.

    A run whose row is not as we know it is left to `append_plain`.
    """
    new: list[rows.Row] = []
    done: dict[str, int] = {}
    for one in plain:
        known = checks.HOT.pop(one.run, None)
        if known is None or not _is_as_known(one, known[0]):
            continue
        before, check, row = known
        hot = before[:3] + _hot_after(tx, one, before)
        made = checks.seal("hot", hot)
        new.append((made, check, *hot))
        done[one.run] = before[0]
        checks.HOT[one.run] = hot, made, row  # it was popped above, so there is room
    if not new:
        return done
    changed = tx.changes()
    if len(new) == 1:
        tx.do("append_known", new[0])
    else:
        tx.write("append_known_rows", new)
    if tx.changes() - changed != len(new):
        found = {number for (number,) in tx.many("appended", [(row[2], row[0]) for row in new])}
        for run in [run for run, number in done.items() if number not in found]:
            del done[run]
            checks.HOT.pop(run, None)
    return done


def _is_as_known(one: Commit, hot: rows.Row) -> bool:
    return bool(hot[1] == one.epoch and hot[4] == one.length and hot[3] == one.head)


def _hot_after(tx: Transaction, one: Commit, before: rows.Row) -> rows.Row:
    """Return the columns that an append changes, as they are after it."""
    last = one.records[-1]
    kept = max(before[6], run_rules.effect_length_of(one))
    sums = astuple(one.tally) if one.tally is not None else before[7:]
    return (last.check, last.seq + 1, tx.now_ms, kept, *sums)


def _end_plain(tx: Transaction, ending: Sequence[Commit]) -> dict[str, int]:
    """Complete the runs whose end touches no other run, if their owners know them; returns their numbers.

    Not those with a parent, children or keys: other commits of the same batch could observe their end.
    """
    done = _end_known(tx, ending)
    others = [one for one in ending if one.run not in done]
    if others:
        done |= dict(tx.many("append_end", [_fence(tx, one) for one in others]))
    if done:
        _append(tx, done, ending)
        tx.do("close_items_of_runs", (msgspec.json.encode(list(done)).decode(),))
        tx.wakes = True
    return done


def _end_known(tx: Transaction, ending: Sequence[Commit]) -> dict[str, int]:
    """Complete the runs whose whole row this process knows; their checks are computed here, not in SQL."""
    new: dict[int, tuple[str, rows.Row]] = {}
    for one in ending:
        known = checks.HOT.pop(one.run, None)
        if known is None or not _is_as_known(one, known[0]):
            continue
        before, check, row = known
        number, epoch, _ = before[:3]
        after = _hot_after(tx, one, before)
        hot = checks.seal("hot", (number, epoch, "completed", *after))
        new[number] = one.run, (hot, checks.ended(row), check, row[-2], number, epoch, *after)
    found = tx.write("append_end_known", [row for _, row in new.values()])
    return {new[number][0]: number for (number,) in found}


def _fence(tx: Transaction, one: Commit) -> rows.Row:
    effects = run_rules.effect_length_of(one)
    fence = (one.new_head, one.new_length, tx.now_ms, one.run, one.epoch, one.length, one.head, effects)
    return fence + rows.sums_of(one.tally)


def _append(tx: Transaction, done: Mapping[str, int], batch: Sequence[Commit]) -> None:
    written = [(done[one.run], one.records) for one in batch if one.run in done]
    append_all(tx, written)
    if not tx.emits:
        tx.emits = any(run_rules.emits(one) for one in batch if not one.is_lone and one.run in done)


def _apply(tx: Transaction, one: Commit) -> Verdict:
    run = find_run(tx, one.run)
    if run is None:
        return Verdict(one.run, Outcome.REFUSED, validation.unknown_run(one.run))
    if run_rules.repeats(run, one):
        return Verdict(one.run, Outcome.COMMITTED)
    fenced = run_rules.committed(run, one, tx.now_ms)
    if isinstance(fenced, Verdict):
        return fenced
    return _apply_whole(tx, run, one)


def _apply_whole(tx: Transaction, run: RunRow, one: Commit) -> Verdict:
    tx.cursor.execute("SAVEPOINT one")
    try:
        reserved = _write(tx, run, one)
    except _Refusal as refusal:
        tx.cursor.execute("ROLLBACK TO one")
        return refusal.verdict
    finally:
        tx.cursor.execute("RELEASE one")
    return Verdict(one.run, Outcome.COMMITTED, key=reserved)


def _write(tx: Transaction, run: RunRow, one: Commit) -> Key | None:
    """Write a commit; returns the key that it reserved. Raises _Refusal."""
    for number, seq in inbox_rules.taken_in(one):
        if tx.one("take_signal", (seq, run.number, number)) is None:
            raise _Refusal(Verdict(run.id, Outcome.STALE))
    for item in one.closes:
        if tx.one("close_item", (item, run.id)) is None:
            raise _Refusal(Verdict(run.id, Outcome.STALE))
    for new in one.opens:
        _open_item(tx, run, new)
    changed = [(op, operate(tx, run, op)) for op in one.keys]
    needless = sum(after is None for _, after in changed)
    after = run_rules.committed(run_rules.with_news(run, needless), one, tx.now_ms)
    if isinstance(after, Verdict):
        raise _Refusal(after)
    append_all(tx, [(run.number, one.records)])
    save_run(tx, after)
    if after.state.is_final:
        end_run(tx, after)
    # Waiters of a key were woken where it let them go.
    tx.wakes = tx.wakes or run_rules.wakes(one, needless=needless, has_waiters=False)
    return next((key for op, key in changed if isinstance(op, ReserveKey)), None)


def _open_item(tx: Transaction, run: RunRow, new: NewItem) -> None:
    row = tx.one("read_item", (new.id,))
    if row is None and tx.one("item_again", (run.id, new.id)) is not None:
        raise checks.hidden("items", new.id)
    with decoding("an inbox item", run.id):
        known = rows.item_of(row) if row is not None else None
    item = inbox_rules.opened(known, new, run.id, tx.now_ms)
    if isinstance(item, Verdict):
        raise _Refusal(item)
    if known is None:
        tx.do("insert_item", checks.sealed("items", rows.row_of_item(item)))


def operate(tx: Transaction, run: RunRow, op: KeyOp) -> Key | None:
    """Apply one key operation and return the key; None when a key to wait for is no longer held."""
    known = find_key(tx, op.key)
    if isinstance(op, WaitKey):
        held = dedup.is_held(known, run.id)
        if held:
            tx.do("add_waiter", checks.sealed("waiters", (run.id, op.key)))
        return known if held else None
    after: Key | Verdict
    if isinstance(op, ReserveKey):
        after = dedup.reserved(known, op, run.id, tx.now_ms)
    else:
        after = dedup.changed(known, op, run.id, tx.now_ms)
    if isinstance(after, Verdict):
        raise _Refusal(after)
    save_key(tx, after)
    refer(tx, run.number, after.blobs)
    if dedup.lets_go(known, after):
        notify_waiters(tx, op.key)
    return after
