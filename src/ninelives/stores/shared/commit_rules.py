"""What one commit, or the end of a run, does to the rows.

A commit is checked and written on a draft. A commit that is refused half-way leaves no trace, because its
draft is dropped.
"""

from __future__ import annotations

from collections.abc import Container
from typing import NamedTuple

from msgspec.structs import replace

from ninelives.core.errors import NineLivesError
from ninelives.core.model.commit import Commit, End, Outcome, Verdict
from ninelives.core.model.inbox import ItemState
from ninelives.core.model.key import Key, ReserveKey, WaitKey
from ninelives.core.model.run import Control, RunRow
from ninelives.core.rules import dedup, inbox_rules, validation
from ninelives.core.rules import run_rules as rules
from ninelives.stores.shared.tables import Rows


class Written(NamedTuple):
    """What became of a commit: its verdict, whether this call wrote it, and whether that wakes workers."""

    verdict: Verdict
    is_written: bool = False
    wakes: bool = False


def write(rows: Rows, blobs: Container[bytes], commit: Commit, now_ms: int) -> Written:
    """Commit to the rows, whole or not at all. The verdict has the key that was reserved."""
    fault = validation.fault_in(commit) or _lost(blobs, commit)
    run = rows.runs.get(commit.run)
    if fault is None and run is None:
        fault = validation.unknown_run(commit.run)
    if fault is not None or run is None:
        return Written(Verdict(commit.run, Outcome.REFUSED, fault))
    if rules.repeats(run, commit):
        return Written(Verdict(run.id, Outcome.COMMITTED))
    fenced = rules.committed(run, commit, now_ms)
    if isinstance(fenced, Verdict):
        return Written(fenced)
    draft = rows.draft()
    refusal = _taken(draft, commit) or _closed(draft, commit) or _opened(draft, commit, now_ms)
    needless, has_waiters = 0, False
    reserved: Key | None = None
    for op in commit.keys:
        if isinstance(op, WaitKey):
            needless += not _waits(draft, op.key, run.id)
            continue
        has_waiters = has_waiters or bool(draft.waiters.get(op.key))
        refusal = refusal or _key_changed(draft, op, run.id, now_ms)
        if isinstance(op, ReserveKey) and reserved is None:
            reserved = draft.keys.get(op.key)
    if refusal is not None:
        return Written(refusal)
    after = rules.committed(rules.with_news(run, needless), commit, now_ms)
    if isinstance(after, Verdict):
        return Written(after)
    draft.runs[run.id] = after
    draft.refers[run.id] = draft.refers.get(run.id, frozenset()).union(rules.blobs_in(commit))
    if isinstance(commit.change, End):
        end(draft, after, now_ms)
    rows.keep(draft)
    verdict = Verdict(run.id, Outcome.COMMITTED, key=reserved)
    return Written(
        verdict, is_written=True, wakes=rules.wakes(commit, needless=needless, has_waiters=has_waiters)
    )


def end(rows: Rows, run: RunRow, now_ms: int) -> None:
    """Clean up after a run that has just ended: pass on its keys, close its items, notify its parent."""
    for name in sorted(rows.holds.get(run.id, ())):
        key = rows.keys[name]
        if dedup.is_of_owner(key, run.id):
            rows.keys[name] = dedup.orphaned(key, now_ms)
            _notify_waiters(rows, name, now_ms)
    for name in rows.waits.get(run.id, ()):
        rows.waiters[name] = rows.waiters[name] - {run.id}
    rows.waits[run.id] = frozenset()
    for name in rows.items_of.get(run.id, ()):
        if rows.items[name].state is ItemState.OPEN:
            rows.items[name] = replace(rows.items[name], state=ItemState.CLOSED)
    if run.parent is not None:
        nudge(rows, run.parent, now_ms)
    if rules.takes_along(run):
        _cancel_children(rows, run.id, now_ms)


def _cancel_children(rows: Rows, parent: str, now_ms: int) -> None:
    for name in rows.children.get(parent, ()):
        child = rows.runs.get(name)
        if child is not None and child.parent == parent and not child.state.is_final:
            rows.runs[name] = after = rules.controlled(child, Control.CANCEL, now_ms)
            if after.state.is_final:
                end(rows, after, now_ms)


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


def _lost(blobs: Container[bytes], commit: Commit) -> NineLivesError | None:
    lost = (digest for digest in rules.blobs_in(commit) if digest not in blobs)
    return next((validation.lost_blob(commit.run, digest) for digest in lost), None)


def _taken(draft: Rows, commit: Commit) -> Verdict | None:
    for number, seq in inbox_rules.taken_in(commit):
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


def _key_changed(draft: Rows, op: ReserveKey | dedup.Change, run: str, now_ms: int) -> Verdict | None:
    before = draft.keys.get(op.key)
    if isinstance(op, ReserveKey):
        after = dedup.reserved(before, op, run, now_ms)
    else:
        after = dedup.changed(before, op, run, now_ms)
    if isinstance(after, Verdict):
        return after
    draft.keys[op.key] = after
    draft.holds[run] = draft.holds.get(run, frozenset()) | {op.key}
    if dedup.lets_go(before, after):
        _notify_waiters(draft, op.key, now_ms)
    return None


def _notify_waiters(rows: Rows, key: str, now_ms: int) -> None:
    for waiter in sorted(rows.waiters.get(key, ())):
        rows.waits[waiter] = rows.waits[waiter] - {key}
        nudge(rows, waiter, now_ms)
    rows.waiters[key] = frozenset()
