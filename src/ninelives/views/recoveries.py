"""The recovery log for people: each entry as text, and as facts for programs."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct

from ninelives.core.errors import StoreError
from ninelives.core.journal.recovery_log import Completion, Left, Recovery, SessionEnd, Verified
from ninelives.core.model.log_entry import Happening, LogEntry
from ninelives.core.step_ids import step_text
from ninelives.engine.worker.quarantine import manner
from ninelives.store import Store
from ninelives.views.records_text import moment

_MOST_STEPS = 5


class RecoveryEntry(Struct, frozen=True, kw_only=True):
    """An entry of the recovery log. Field names are stable: programs read them."""

    seq: int
    at: datetime
    kind: Happening
    run: str
    session: str
    text: str
    facts: Any


def recoveries(store: Store, run: str | None = None, limit: int = 50) -> list[RecoveryEntry]:
    """Return the last entries of the log, newest first: of one run or of all. Raises Corrupt."""
    return [
        RecoveryEntry(
            seq=entry.seq,
            at=moment(entry.at_ms),
            kind=entry.kind,
            run=entry.run,
            session=entry.session,
            text=text_of(entry),
            facts=msgspec.json.decode(entry.body),
        )
        for entry in store.read_log(run=run, limit=limit)
    ]


def last_recovery(store: Store, run: str) -> str:
    """Return how a run was last recovered, in words; empty when it never was.

    Never raises for a damaged log, but says so: the view of a run must not depend on the log.
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
    """Return an entry in words."""
    if entry.kind is Happening.ENDED:
        ended = msgspec.json.decode(entry.body, type=SessionEnd)
        how = manner(ended.cause, ended.evidence)
        return f"the worker pid {ended.pid} on {ended.host} {how}; it had {_count(ended.runs, 'run')}"
    if entry.kind is Happening.LEFT:
        left = msgspec.json.decode(entry.body, type=Left)
        solo = " while running solo" if left.was_solo else ""
        return f"its worker {left.cause}{solo}; {_count(left.deaths, 'death')} without progress"
    if entry.kind is Happening.TAKEN:
        return "taken over"
    if entry.kind is Happening.COMPLETED:
        return f"{msgspec.json.decode(entry.body, type=Completion).state} after a recovery"
    return _recovered(msgspec.json.decode(entry.body, type=Recovery))


def _recovered(found: Recovery) -> str:
    parts = [f"the previous worker {found.cause or 'is unknown'}"]
    if found.progress_ms is not None and found.died_ms:
        parts.append(f"resumed {max(0, found.progress_ms - found.died_ms)} ms after that was noticed")
    elif found.progress_ms is None:
        parts.append("its worker died again before making progress")
    parts.append(f"{_count(found.replayed, 'step')} replayed{_saved(found)}")
    if found.redone:
        more = "…" if len(found.redone) > _MOST_STEPS else ""
        parts.append(f"interrupted: {', '.join(map(step_text, found.redone[:_MOST_STEPS]))}{more}")
    parts.append(_verified(found.verified))
    return "; ".join(parts)


def _saved(found: Recovery) -> str:
    if not found.decisions:
        return ""
    tokens = f", {found.tokens} tokens" if found.tokens else ""
    return f" (saved {_count(found.decisions, 'model call')}{tokens})"


def _verified(found: Verified) -> str:
    if found.faults:
        return f"WRONG: {'; '.join(found.faults)}"
    parts = [_count(found.records, "record"), _count(found.outcomes, "outcome")]
    if found.keys:
        parts.append(_count(found.keys, "key"))
    if found.resources:
        parts.append(f"{found.checked} of {_count(found.resources, 'held resource')}")
    stale = f"; changed since: {', '.join(found.stale)}" if found.stale else ""
    return f"verified: {', '.join(parts)}{stale}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
