"""What commits, or the end of a run, do to the rows.

A commit is checked and written on a draft. A commit that is refused half-way leaves no trace, because its
draft is dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Sequence
from contextlib import suppress
from typing import NamedTuple

from msgspec.structs import replace

from ninelives.core.errors import Corrupt, NineLivesError, UsageError
from ninelives.core.model.commit import Commit, End, Outcome, Verdict
from ninelives.core.model.inbox import ItemState
from ninelives.core.model.key import Key, ReserveKey, WaitKey
from ninelives.core.model.run import Control, Record, RunRow, State
from ninelives.core.rules import dedup, documents, inbox_rules, validation
from ninelives.core.rules import run_rules as rules
from ninelives.stores.shared.tables import OpenTransaction, Rows, Tables


def commit(
    batch: Sequence[Commit],
    is_quick: Callable[[Commit], bool],
    append: Callable[[Sequence[Commit]], set[str]],
    write_others: Callable[[Sequence[Commit]], list[Verdict]],
) -> list[Verdict]:
    """Commit a batch to a server: in one request if all of it is quick, else in a transaction.

    `append` returns the runs that it has appended to; the others are tried again with `write_others`.
    """
    require_distinct(batch)
    verdicts: dict[str, Verdict] = {}
    sound: list[Commit] = []
    for one in batch:
        fault = validation.fault_in(one)
        if fault is None and validation.is_text(one.run):
            sound.append(one)
        else:
            verdicts[one.run] = Verdict(one.run, Outcome.REFUSED, fault or validation.unknown_run(one.run))
    left = sound
    # All or none: a batch is one durable write, and a quick part would be one of its own.
    if sound and all(map(is_quick, sound)):
        done = append(sound)
        verdicts |= {run: Verdict(run, Outcome.COMMITTED) for run in done}
        left = [one for one in sound if one.run not in done]
    if left:
        verdicts |= {verdict.run: verdict for verdict in write_others(left)}
    return [verdicts[one.run] for one in batch]


def require_distinct(batch: Sequence[Commit]) -> None:
    """Raise UsageError when a run occurs twice in a batch."""
    if len({one.run for one in batch}) != len(batch):
        raise UsageError("a run occurs twice in one batch", remedy="Merge its commits, or send them apart")


def apply(tx: OpenTransaction, tables: Tables, batch: Sequence[Commit]) -> list[Verdict]:
    """Apply commits within a transaction, each whole or not at all."""
    if not batch:
        return []
    tables.prepare(batch)
    wanted = list(dict.fromkeys(digest for one in batch for digest in rules.blobs_in(one)))
    known = tables.known_blobs(wanted) if wanted else ()
    verdicts: list[Verdict] = []
    appended: list[tuple[RunRow, Sequence[Record]]] = []
    for one in batch:
        fault = validation.fault_in(one) or lost_blob(known, one)
        if fault is not None:
            verdicts.append(Verdict(one.run, Outcome.REFUSED, fault))
            continue
        draft = tables.rows.draft()
        verdict, run = write(tx, draft, one)
        verdicts.append(verdict)
        if run is not None:
            # Kept before the next commit of the batch:
            # that one may depend on the key that this one has just freed.
            tables.rows.keep(draft)
            appended.append((run, one.records))
    tables.write_back()
    tables.append(appended)
    return verdicts


def write(tx: OpenTransaction, draft: Rows, commit: Commit) -> tuple[Verdict, RunRow | None]:
    """Write a sound commit to a draft; return the verdict, and the run's row if the commit was written.

    A refused commit may leave a part of itself in the draft: the caller drops it. The verdict has the key
    that was reserved.
    """
    run, now_ms = draft.runs.get(commit.run), tx.now_ms
    if run is None:
        return Verdict(commit.run, Outcome.REFUSED, validation.unknown_run(commit.run)), None
    # Before the fence: a commit whose answer was lost no longer matches it, and is not to be refused.
    if rules.repeats(run, commit):
        return Verdict(run.id, Outcome.COMMITTED), None
    # Judged first, and again below with the news that key
    # operations bring: a fenced commit must not touch keys.
    fenced = rules.committed(run, commit, now_ms)
    if isinstance(fenced, Verdict):
        return fenced, None
    refusal = documents.unmet(draft.documents, commit) if commit.requires else None
    refusal = refusal or _taken(draft, commit) or _closed(draft, commit) or _opened(draft, commit, now_ms)
    if refusal is not None:
        return refusal, None
    changed = _change_keys(draft, commit, now_ms) if commit.keys else _NO_KEYS
    if isinstance(changed, Verdict):
        return changed, None
    needless, has_waiters, reserved = changed
    # Last: a call whose key is held by another run spends nothing.
    refusal = documents.charge(draft.documents, commit, now_ms) if commit.accounts else None
    if refusal is not None:
        return refusal, None
    after = rules.committed(rules.with_news(run, needless), commit, now_ms)
    if isinstance(after, Verdict):
        return after, None
    draft.runs[run.id] = after
    if wanted := rules.blobs_in(commit):
        draft.refers[run.id] = draft.refers.get(run.id, frozenset()).union(wanted)
    if isinstance(commit.change, End):
        # The keys of this very commit too: a store that finds holds by the keys' rows does not know them yet.
        end(draft, after, now_ms, {op.key for op in commit.keys})
    tx.wakes = tx.wakes or rules.wakes(commit, needless=needless, has_waiters=has_waiters)
    tx.emits = tx.emits or rules.emits(commit)
    return Verdict(run.id, Outcome.COMMITTED, key=reserved), after


class _ChangedKeys(NamedTuple):
    """How many keys were free that the run would wait for, whether runs got news, and what was reserved."""

    needless: int
    has_waiters: bool
    reserved: Key | None


_NO_KEYS = _ChangedKeys(0, has_waiters=False, reserved=None)


def _change_keys(draft: Rows, commit: Commit, now_ms: int) -> _ChangedKeys | Verdict:
    """Apply the key operations of a commit, in order; return the verdict that refuses it, if one does."""
    needless, has_waiters = 0, False
    reserved: Key | None = None
    for op in commit.keys:
        if isinstance(op, WaitKey):
            # The key was let go before the run could register:
            # counted as news, else the run would park and never wake.
            needless += not _waits(draft, op.key, commit.run)
            continue
        after_op = change_key(draft, op, commit.run, now_ms)
        if isinstance(after_op, Verdict):
            return after_op
        key, is_awaited = after_op
        has_waiters = has_waiters or is_awaited
        if isinstance(op, ReserveKey) and reserved is None:
            reserved = key
    return _ChangedKeys(needless, has_waiters, reserved)


def end(rows: Rows, run: RunRow, now_ms: int, touched: Collection[str] = ()) -> None:
    """Clean up after a run that has just ended: pass on its keys, close its items, notify its parent.

    `touched` are the keys that its last commit has changed.
    """
    # In the order of names, in which every transaction locks rows: else two runs that end at once deadlock.
    for name in sorted({*rows.holds.get(run.id, ()), *touched}):
        key = rows.keys.get(name)
        if key is not None and dedup.is_of_owner(key, run.id):
            rows.keys[name] = dedup.orphaned(key, now_ms)
            notify_waiters(rows, name, now_ms)
    stop_waiting(rows, run.id)
    close_items(rows, run.id)
    if run.parent is not None:
        nudge(rows, run.parent, now_ms)
    if rules.takes_along(run):
        _cancel_children(rows, run.id, now_ms)


def stop_waiting(rows: Rows, run: str) -> None:
    """Drop a run from those that wait for keys."""
    for name in rows.waits.get(run, ()):
        rows.waiters[name] = rows.waiters[name] - {run}
    rows.waits[run] = frozenset()


def close_items(rows: Rows, run: str) -> None:
    """Close the open inbox items of a run."""
    for name in rows.items_of.get(run, ()):
        if rows.items[name].state is ItemState.OPEN:
            rows.items[name] = replace(rows.items[name], state=ItemState.CLOSED)


def _cancel_children(rows: Rows, parent: str, now_ms: int) -> None:
    for name in rows.children.get(parent, ()):
        with suppress(Corrupt):  # a damaged child does not prevent its parent from ending
            child = rows.runs.get(name)
            # The list of children may name a run that was pruned, and whose id was used again.
            if child is not None and child.parent == parent and not _is_gone(child):
                rows.runs[name] = after = rules.controlled(child, Control.CANCEL, now_ms)
                if after.state.is_final:
                    end(rows, after, now_ms)


def _is_gone(run: RunRow) -> bool:
    return run.state.is_final or run.state is State.MOVED


def family(rows: Rows, run: str) -> set[str]:
    """Return a run and all its descendants."""
    found, left = set[str](), [run]
    while left:
        name = left.pop()
        if name not in found:
            found.add(name)
            born = (rows.runs.get(child) for child in rows.children.get(name, ()))
            left += [child.id for child in born if child is not None and child.parent == name]
    return found


def nudge(rows: Rows, name: str, now_ms: int) -> None:
    """Give a run news and wake it; a run that has ended, or does not exist, is left as it is."""
    run = rows.runs.get(name)
    if run is not None and not run.state.is_final:
        rows.runs[name] = rules.nudged(run, now_ms)


def lost_blob(blobs: Container[bytes], commit: Commit) -> NineLivesError | None:
    """Return the error for the first blob of a commit that does not exist."""
    lost = (digest for digest in rules.blobs_in(commit) if digest not in blobs)
    return next((validation.lost_blob(commit.run, digest) for digest in lost), None)


def _taken(draft: Rows, commit: Commit) -> Verdict | None:
    for number, seq in inbox_rules.taken_in(commit) if commit.takes else ():
        queue = draft.signals.get(commit.run, ())
        if not any(signal.number == number and signal.taken is None for signal in queue):
            return Verdict(commit.run, Outcome.STALE)
        draft.signals[commit.run] = tuple(
            replace(signal, taken=seq) if signal.number == number else signal for signal in queue
        )
    return None


def _closed(draft: Rows, commit: Commit) -> Verdict | None:
    for name in commit.closes:
        item = draft.items.get(name)
        if item is None or item.run != commit.run or item.state is not ItemState.OPEN:
            return Verdict(commit.run, Outcome.STALE)
        draft.items[name] = replace(item, state=ItemState.CLOSED)
    return None


def _opened(draft: Rows, commit: Commit, now_ms: int) -> Verdict | None:
    for new in commit.opens:
        item = inbox_rules.opened(draft.items.get(new.id), new, commit.run, now_ms)
        if isinstance(item, Verdict):
            return item
        draft.add_item(item)
    return None


def _waits(draft: Rows, key: str, run: str) -> bool:
    """Register the run as a waiter for the key if another run holds it; return whether it does."""
    held = dedup.is_held(draft.keys.get(key), run)
    if held:
        draft.waiters[key] = draft.waiters.get(key, frozenset()) | {run}
        draft.waits[run] = draft.waits.get(run, frozenset()) | {key}
    return held


def change_key(
    draft: Rows, op: ReserveKey | dedup.Change, run: str, now_ms: int
) -> tuple[Key, bool] | Verdict:
    """Change a key; return it, and whether runs waited for it, which now have news."""
    before = draft.keys.get(op.key)
    if isinstance(op, ReserveKey):
        after = dedup.reserved(before, op, run, now_ms)
    else:
        after = dedup.changed(before, op, run, now_ms)
    if isinstance(after, Verdict):
        return after
    draft.keys[op.key] = after
    if draft.keeps_holds:
        draft.add_hold(run, op.key)
    return after, dedup.lets_go(before, after) and notify_waiters(draft, op.key, now_ms)


def notify_waiters(rows: Rows, key: str, now_ms: int) -> bool:
    """Give news to the runs that wait for a key; return whether there are any."""
    waiting = rows.waiters.get(key)
    if not waiting:
        return False
    for waiter in sorted(waiting):
        rows.waits[waiter] = rows.waits[waiter] - {key}
        nudge(rows, waiter, now_ms)
    rows.waiters[key] = frozenset()
    return True
