"""The rules of the dedup table: the effect of each operation on a business key, as pure functions.

    (none) ─reserve→ RESERVED ─settle→ SETTLED ─prune→ PRUNED
                        │  ├─doubt→ IN DOUBT ─settle→ SETTLED
                        │  └─pass→ FREE ─reserve→ RESERVED
                        └─release→ FREE (generation + 1) ─reserve→ RESERVED
    IN DOUBT ─release→ FREE (generation + 1)
    SETTLED or PRUNED, older than the window of the new reservation ─reserve→ RESERVED (generation + 1)

When the owner ends while it holds the key, a resumable action's key becomes FREE; a non-resumable one's
becomes ORPHANED: no run may start the action again without proof, and the next run that wants the key
─adopt→ IN DOUBT.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from ninelives.core.errors import BadRecord, KeyConflict
from ninelives.core.model.commit import Outcome, Verdict
from ninelives.core.model.key import (
    AdoptKey,
    DoubtKey,
    Key,
    KeyState,
    PassKey,
    ReleaseKey,
    ReserveKey,
    SettleKey,
)

Change = SettleKey | ReleaseKey | DoubtKey | PassKey | AdoptKey
_HELD = (KeyState.RESERVED, KeyState.IN_DOUBT)


def reserved(known: Key | None, op: ReserveKey, run: str, now_ms: int) -> Key | Verdict:
    """Reserve the key for the run: return its new row, or the verdict that refuses it."""
    # By the window of the new reservation, not the old one:
    # the code that acts now says how long a result protects it.
    is_expired = known is not None and _is_past(known, op.window_ms, now_ms)
    if known is None or known.state is KeyState.FREE or is_expired:
        return Key(
            key=op.key,
            action=op.action,
            fingerprint=op.fingerprint,
            run=run,
            resumable=op.resumable,
            state=KeyState.RESERVED,
            generation=known.generation + is_expired if known else 0,
            body=b"",
            blobs=(),
            changed_ms=now_ms,
        )
    # Refused, not passed on as free: the action was done, and only its result is gone.
    if known.state is KeyState.PRUNED:
        return _refused(
            run,
            f"the key {op.key!r} was used before and its result has been pruned",
            _again(known, op, now_ms),
        )
    if known.state is KeyState.MOVED:
        url = msgspec.json.decode(known.body, type=str)
        return _refused(
            run,
            f"the key {op.key!r} belongs to run {known.run!r}, which was moved to {url}",
            "Whether its action was done is known there. Move this run there too, or use another key",
        )
    is_other = not is_same_action(known, op)
    if is_other or known.fingerprint != op.fingerprint:
        other = f"action {known.action!r}" if is_other else "other arguments"
        return _refused(
            run,
            f"the key {op.key!r} belongs to run {known.run!r} with {other}",
            "Use a key that contains everything that makes the action different, or declare identity=",
        )
    # The same run asks again: it died between its reservation and its outcome.
    if known.state is KeyState.RESERVED and known.run == run:
        return known
    return Verdict(run, Outcome.HELD, key=known)


def _again(known: Key, op: ReserveKey, now_ms: int) -> str:
    """Return the remedy for a key whose result was pruned."""
    if op.window_ms is None:
        return "Use another key, or declare key_window= if it may be used again"
    left_ms = known.changed_ms + op.window_ms - now_ms
    return f"Use another key, or wait: by its key_window= it may be used again in {left_ms / 1000:.0f} s"


def is_same_action(known: Key, op: ReserveKey) -> bool:
    """Return whether a key belongs to the action that wants it, under its name or an earlier one."""
    return known.action == op.action or known.action in op.aliases


def _is_past(known: Key, window_ms: int | None, now_ms: int) -> bool:
    used = known.state in (KeyState.SETTLED, KeyState.PRUNED)
    return used and window_ms is not None and now_ms - known.changed_ms >= window_ms


def changed(known: Key | None, op: Change, run: str, now_ms: int) -> Key | Verdict:
    """Change a key that the run holds or adopts: return its new row, or the verdict that refuses it."""
    if isinstance(op, AdoptKey):
        # Only an orphan may be adopted: while its owner lives, two runs would settle the same doubt.
        if known is not None and known.state is KeyState.ORPHANED:
            return replace(known, state=KeyState.IN_DOUBT, run=run, changed_ms=now_ms)
        return Verdict(run, Outcome.HELD, key=known)
    # A worker that lost its run must not settle a key that another run holds by now.
    if known is None or known.run != run or known.state not in _HELD:
        state = known.state if known else "unknown"
        return Verdict(
            run,
            Outcome.REFUSED,
            BadRecord(f"the key {op.key!r} is {state} and not held by this run", run=run),
        )
    if isinstance(op, SettleKey):
        return replace(known, state=KeyState.SETTLED, body=op.body, blobs=op.blobs, changed_ms=now_ms)
    if isinstance(op, ReleaseKey):
        return replace(known, state=KeyState.FREE, generation=known.generation + 1, changed_ms=now_ms)
    if isinstance(op, PassKey):
        if known.resumable:
            return replace(known, state=KeyState.FREE, changed_ms=now_ms)
        fault = BadRecord(
            f"the key {op.key!r} is of a non-resumable action: nothing proves that it did not happen", run=run
        )
        return Verdict(run, Outcome.REFUSED, fault)
    return replace(known, state=KeyState.IN_DOUBT, changed_ms=now_ms)


def orphaned(known: Key, now_ms: int) -> Key:
    """Return the row of a key that its owner still held when it ended."""
    # In doubt, the key stays closed even for a resumable action:
    # the next run that wants it settles the doubt first.
    may_be_repeated = known.resumable and known.state is KeyState.RESERVED
    state = KeyState.FREE if may_be_repeated else KeyState.ORPHANED
    return replace(known, state=state, changed_ms=now_ms)


def is_held(known: Key | None, asker: str) -> bool:
    """Return whether a run must wait for news of the key, because another run holds it."""
    return known is not None and known.state in _HELD and known.run != asker


def is_of_owner(known: Key, run: str) -> bool:
    """Return whether the key is held by this run."""
    return known.run == run and known.state in _HELD


def lets_go(before: Key | None, after: Key) -> bool:
    """Return whether this change settles or frees a key that other runs may wait for."""
    return before is not None and before.state in _HELD and after.state not in _HELD


def pruned(known: Key) -> Key:
    """Return a settled key's tombstone: it has lost the result, but keeps the time of settling."""
    # `changed_ms` stays: the key's window counts from when it was settled, not from when it was pruned.
    return replace(known, state=KeyState.PRUNED, body=b"", blobs=())


def _refused(run: str, what: str, remedy: str) -> Verdict:
    return Verdict(run, Outcome.REFUSED, KeyConflict(what, run=run, remedy=remedy))
