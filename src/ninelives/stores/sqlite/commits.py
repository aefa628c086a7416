"""The write path: many runs in one transaction, one verdict for each.

A commit that only appends, or that completes its run, takes two statements: a conditional update of the run's
row, which is the fence, and the insert. Each is one call of the driver for the whole batch. A commit that
also changes one business key (the two commits of a keyed action) needs the key's row besides. Commits that
also reserve or settle in accounts read and write each account once, for all of them. Every other commit is
applied to tables of its own by the rules that all stores share.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Mapping, Sequence

import msgspec
from msgspec.structs import astuple, replace

from ninelives.core.errors import NineLivesError
from ninelives.core.model.commit import Commit, Outcome, Verdict
from ninelives.core.model.document import Document
from ninelives.core.model.key import ReserveKey, WaitKey
from ninelives.core.rules import dedup, documents, run_rules, validation
from ninelives.stores.shared import commit_rules, rows
from ninelives.stores.sqlite import checks, lookups
from ninelives.stores.sqlite.lookups import known_blobs
from ninelives.stores.sqlite.tables import Tables
from ninelives.stores.sqlite.transaction import Transaction, append_all, find_key, save_key


def commit(tx: Transaction, batch: Sequence[Commit]) -> list[Verdict]:
    """Apply a batch; see `Store.commit`."""
    refused: dict[str, NineLivesError] = {}
    if len(batch) != 1 or not batch[0].is_lone:
        if len(batch) > 1:
            commit_rules.require_distinct(batch)
        for one in batch:
            # The caller of a lone one has sealed and checked its record: nothing is left to validate.
            if not one.is_lone and (fault := _fault(tx, one)) is not None:
                refused[one.run] = fault
        if any(one.requires for one in batch):
            batch = _freed(tx, batch, refused)
    plain: list[Commit] = []
    ending: list[Commit] = []
    for one in batch:
        if one.is_lone:
            plain.append(one)
        elif one.keys or one.requires or not one.records or one.run in refused:
            continue  # neither kind, which saves asking
        elif one.is_plain:
            plain.append(one)
        elif one.is_plain_end:
            ending.append(one)
    # All plain commits before all others: they touch no
    # row but their own, so no verdict depends on the order.
    done = _append_plain(tx, plain) if plain else {}
    if ending:
        done |= _end_plain(tx, ending)
    others: dict[str, Verdict] = {}
    if len(done) + len(refused) < len(batch):
        others = _apply_rest(tx, [one for one in batch if one.run not in done and one.run not in refused])
    return [
        Verdict(one.run, Outcome.COMMITTED)
        if one.run in done
        else Verdict(one.run, Outcome.REFUSED, refused[one.run])
        if one.run in refused
        else others[one.run]
        for one in batch
    ]


def _apply_rest(tx: Transaction, batch: Sequence[Commit]) -> dict[str, Verdict]:
    """Apply commits in order, as one may depend on another; return their verdicts."""
    said: dict[str, Verdict] = {}
    at = 0
    while at < len(batch):
        after = at
        while after < len(batch) and batch[after].accounts and batch[after].only_charges:
            after += 1
        done = _append_charging(tx, batch[at:after]) if after > at else {}
        said |= {run: Verdict(run, Outcome.COMMITTED) for run in done}
        at += len(done)
        # What stopped it, or another kind of commit: the rules decide, and the next ones come after it.
        if at < len(batch) and (not done or at < after):
            said[batch[at].run] = _apply(tx, batch[at])
            at += 1
    return said


def _freed(tx: Transaction, batch: Sequence[Commit], refused: Container[str]) -> Sequence[Commit]:
    """Return the batch without requirements that are met: the writers' lock keeps them so.

    The others keep theirs, and the rules judge them: a commit that was applied before is not refused.
    """
    # A commit of this very batch may still change an account.
    touched = {op.account for one in batch for op in one.accounts}
    names = {required.name for one in batch for required in one.requires} - touched
    found = {name: lookups.find_document(tx, name) for name in names}
    known = {name: document for name, document in found.items() if document is not None}
    return [
        replace(one, requires=())
        if one.requires and one.run not in refused and _are_met(one, names, known)
        else one
        for one in batch
    ]


def _are_met(one: Commit, names: Collection[str], known: Mapping[str, Document]) -> bool:
    return all(required.name in names for required in one.requires) and documents.unmet(known, one) is None


def _fault(tx: Transaction, one: Commit) -> NineLivesError | None:
    fault: NineLivesError | None = validation.fault_in(one)
    if fault is None and (wanted := run_rules.blobs_in(one)):
        fault = commit_rules.lost_blob(known_blobs(tx, wanted), one)
    return fault


def _append_plain(tx: Transaction, plain: Sequence[Commit]) -> dict[str, int]:
    """Append to the runs whose epoch, length and head are as their commit expects; return their numbers."""
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
    # Rare: a row is not as we know it. Only then is it worth asking which.
    if tx.changes() - changed != len(new):
        found = {number for (number,) in tx.many("appended", [(row[2], row[0]) for row in new])}
        for run in [run for run, number in done.items() if number not in found]:
            del done[run]
            # The hint was wrong, or its transaction was rolled back; `append_plain` reads the row itself.
            checks.HOT.pop(run, None)
    return done


def _is_as_known(one: Commit, hot: rows.Row) -> bool:
    return bool(hot[1] == one.epoch and hot[4] == one.length and hot[3] == one.head)


def _hot_after(tx: Transaction, one: Commit, before: rows.Row) -> rows.Row:
    """Return the columns that an append changes, as they are after it."""
    last = one.records[-1]
    effects = one.effect_length if one.is_lone else run_rules.effect_length_of(one)
    kept = max(effects, before[6])
    sums = astuple(one.tally) if one.tally is not None else before[7:]
    return (last.check, last.seq + 1, tx.now_ms, kept, *sums)


def _end_plain(tx: Transaction, ending: Sequence[Commit]) -> dict[str, int]:
    """Complete the runs whose end touches no other run, if the fence holds; return their numbers.

    Not those with a parent, children or keys: other commits of the same batch could observe their end.
    """
    done = _end_known(tx, ending)
    others = [one for one in ending if one.run not in done]
    if others:
        done |= dict(tx.many("append_end", [_fence(tx, one) for one in others]))
    if done:
        _append(tx, done, ending)
        # A run that has ended takes no answer: an open item would ask a person in vain.
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
        *_, cold, hot = checks.ended(row, after)
        new[number] = one.run, (hot, cold, check, row[-2], number, epoch, *after)
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


def _append_with_key(tx: Transaction, one: Commit) -> Verdict | None:
    """Append, and change one key that concerns no other run; None: nothing was written."""
    op = one.keys[0]
    # Waiting registers the run at the key, and blobs must be known to exist: both need the tables.
    if isinstance(op, WaitKey) or run_rules.blobs_in(one):
        return None
    if one.run not in checks.HOT:
        return None
    before = find_key(tx, op.key)
    if isinstance(op, ReserveKey):
        after = dedup.reserved(before, op, one.run, tx.now_ms)
    else:
        after = dedup.changed(before, op, one.run, tx.now_ms)
    # Runs that wait for the key get news in the same commit: their rows are not ours to change here.
    if isinstance(after, Verdict) or (dedup.lets_go(before, after) and tx.all("waiters", (op.key,))):
        return None
    # The fence before the key: a worker that lost its run must not reserve or settle anything.
    done = _append_known(tx, (one,))
    if not done:
        return None
    save_key(tx, after)
    _append(tx, done, (one,))
    return Verdict(one.run, Outcome.COMMITTED, key=after if isinstance(op, ReserveKey) else None)


def _append_charging(tx: Transaction, charging: Sequence[Commit]) -> dict[str, int]:
    """Append, and reserve or settle in accounts; return the numbers of the runs whose commit was applied.

    It stops at the first one that the rules must decide: a limit would be passed, or its run is not known.
    """
    known: dict[str, Document] = {}
    after: dict[str, Document] = {}
    seen: set[str] = set()
    sound: list[Commit] = []
    for one in charging:
        if one.run not in checks.HOT or run_rules.blobs_in(one):
            break
        for name in {op.account for op in one.accounts} - seen:
            seen.add(name)
            if (document := lookups.find_document(tx, name)) is not None:
                known[name] = after[name] = document
        draft = dict(after)
        if documents.charge(draft, one, tx.now_ms) is not None:
            break
        after = draft
        sound.append(one)
    # The fence before the accounts: a worker that lost its run must not charge anything.
    done = _all_or_none(tx, sound) if sound else {}
    if done:
        for name, document in after.items():
            if document is not known.get(name):
                lookups.save_document(tx, document)
        _append(tx, done, sound)
    return done


def _all_or_none(tx: Transaction, batch: Sequence[Commit]) -> dict[str, int]:
    """Append to all of these runs, or to none: what each may charge depends on the ones before it."""
    if len(batch) == 1:
        return _append_known(tx, batch)
    tx.do("begin_part")
    done = _append_known(tx, batch)
    if len(done) < len(batch):
        tx.do("undo_part")  # what is known of their rows is wrong now, and no longer fits: they are read
        done = {}
    tx.do("end_part")
    return done


def _apply(tx: Transaction, one: Commit) -> Verdict:
    quick = _append_with_key(tx, one) if one.changes_one_key else None
    if quick is not None:
        return quick
    tables = Tables(tx)
    verdict, run = commit_rules.write(tx, tables.rows, one)
    if run is not None:  # what a refused commit has changed of its tables is dropped with them
        tables.write_back()
        tables.append([(run, one.records)])
    return verdict
