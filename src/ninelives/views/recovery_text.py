"""The recovery log in words."""

from __future__ import annotations

import msgspec

from ninelives.core.errors import StoreError
from ninelives.core.journal.recovery_log import Completion, Left, Recovery, SessionEnd, Verified
from ninelives.core.model.log_entry import Happening, LogEntry
from ninelives.core.step_ids import step_text
from ninelives.engine.worker.quarantine import manner
from ninelives.store import Store
from ninelives.views.checkpoint import moment

_MOST_STEPS = 5


def last_recovery(store: Store, run: str) -> str:
    """Say in words how a run was last recovered; empty when it never was.

    Where a run is does not hang on the log: one that cannot be read is said to be so.
    """
    try:
        entries = store.read_log(run=run)
    except StoreError as error:
        return f"the recovery log cannot be read: {error.what}"
    for entry in entries:
        if entry.kind is Happening.RECOVERED:
            return f"{moment(entry.at_ms):%Y-%m-%d %H:%M:%SZ}: {text_of(entry)}"
    return ""


def text_of(entry: LogEntry) -> str:
    """Say in words what an entry tells."""
    if entry.kind is Happening.ENDED:
        ended = msgspec.json.decode(entry.body, type=SessionEnd)
        how = manner(ended.cause, ended.evidence)
        return f"the worker pid {ended.pid} on {ended.host} {how}; it had {_count(ended.runs, 'run')}"
    if entry.kind is Happening.LEFT:
        left = msgspec.json.decode(entry.body, type=Left)
        alone = ", alone" if left.was_alone else ""
        return f"left by its worker ({left.cause}{alone}); {_count(left.deaths, 'death')} without progress"
    if entry.kind is Happening.TAKEN:
        return "taken over"
    if entry.kind is Happening.COMPLETED:
        return f"{msgspec.json.decode(entry.body, type=Completion).state} after having been recovered"
    return _recovered(msgspec.json.decode(entry.body, type=Recovery))


def _recovered(told: Recovery) -> str:
    parts = [f"the worker before it {told.cause or 'is unknown'}"]
    if told.progress_ms is not None and told.died_ms:
        parts.append(f"moving again {max(0, told.progress_ms - told.died_ms)} ms after that was noticed")
    elif told.progress_ms is None:
        parts.append("it was left again before it moved")
    parts.append(f"{_count(told.replayed, 'step')} found recorded and not done again")
    if told.decisions:
        tokens = f" ({told.tokens} tokens)" if told.tokens else ""
        parts.append(f"of these {_count(told.decisions, 'decision')} not paid for again{tokens}")
    if told.redone:
        more = "…" if len(told.redone) > _MOST_STEPS else ""
        parts.append(f"under way then: {', '.join(map(step_text, told.redone[:_MOST_STEPS]))}{more}")
    parts.append(_verified(told.verified))
    return "; ".join(parts)


def _verified(found: Verified) -> str:
    if found.faults:
        return f"WRONG: {'; '.join(found.faults)}"
    parts = [_count(found.records, "record"), _count(found.outcomes, "outcome")]
    if found.keys:
        parts.append(_count(found.keys, "key"))
    if found.resources:
        parts.append(f"{found.checked} of {_count(found.resources, 'held resource')}")
    stale = f"; not as they were: {', '.join(found.stale)}" if found.stale else ""
    return f"verified: {', '.join(parts)}{stale}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
