"""The recovery log for people: each entry as text, and as facts for programs."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct

from ninelives.core.clock import moment
from ninelives.core.errors import StoreError, UnknownRun
from ninelives.core.journal.recovery_log import Completion, Left, Recovery, SessionEnd, Verified
from ninelives.core.model.log_entry import Happening, LogEntry
from ninelives.core.model.run import Record
from ninelives.core.model.session import Cause, Session
from ninelives.engine.worker.quarantine import manner
from ninelives.store import Store
from ninelives.views.counted import counted
from ninelives.views.interrupted import interrupted_text


class RecoveryEntry(Struct, frozen=True, kw_only=True):
    """An entry of the recovery log. Field names are stable: programs read them.

    `log` are the last lines of a worker that died; of one that hung, its stacks.
    """

    seq: int
    at: datetime
    kind: Happening
    run: str
    session: str
    text: str
    facts: Any
    log: tuple[str, ...] = ()


class RecoveryLog:
    """Reads the recovery log of a store, and what it refers to: each session and journal once."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._sessions: dict[str, Session | None] = {}
        self._journals: dict[str, tuple[Record, ...]] = {}

    def entry(self, entry: LogEntry) -> RecoveryEntry:
        """Return an entry as text and facts."""
        return RecoveryEntry(
            seq=entry.seq,
            at=moment(entry.at_ms),
            kind=entry.kind,
            run=entry.run,
            session=entry.session,
            text=self.text_of(entry),
            facts=msgspec.json.decode(entry.body),
            log=self._last_lines(entry),
        )

    def text_of(self, entry: LogEntry) -> str:
        """Return an entry in words."""
        if entry.kind is Happening.ENDED:
            ended = msgspec.json.decode(entry.body, type=SessionEnd)
            how = manner(ended.cause, ended.evidence)
            return f"the worker pid {ended.pid} on {ended.host} {how}; it had {counted(ended.runs, 'run')}"
        if entry.kind is Happening.LEFT:
            left = msgspec.json.decode(entry.body, type=Left)
            solo = " while running solo" if left.was_solo else ""
            died = (
                "" if left.cause is Cause.STOPPED else f"; {counted(left.deaths, 'death')} without progress"
            )
            return f"its worker {self._manner(entry.session, left.cause)}{solo}{died}"
        if entry.kind is Happening.TAKEN:
            return "taken over"
        if entry.kind is Happening.COMPLETED:
            return f"{msgspec.json.decode(entry.body, type=Completion).state} after a recovery"
        return self._recovered(entry.run, msgspec.json.decode(entry.body, type=Recovery))

    def _last_lines(self, entry: LogEntry) -> tuple[str, ...]:
        if entry.kind is Happening.ENDED:
            seen = msgspec.json.decode(entry.body, type=SessionEnd).evidence
        elif entry.kind is Happening.LEFT and (session := self._session(entry.session)) is not None:
            seen = session.evidence
        else:
            seen = None
        return seen.log if seen is not None else ()

    def _session(self, name: str) -> Session | None:
        if name not in self._sessions:
            self._sessions[name] = self._store.read_session(name)
        return self._sessions[name]

    def _manner(self, name: str, cause: Cause | None) -> str:
        session = self._session(name)
        return manner(cause, session.evidence if session is not None else None)

    def _recovered(self, run: str, found: Recovery) -> str:
        parts = [f"the previous worker {self._manner(found.left_by, found.cause)}"]
        if found.cause is None:
            parts = ["how the previous worker ended is unknown"]
        if found.stood_still_ms is not None:
            parts.append(f"resumed {found.stood_still_ms} ms after that was noticed")
        elif found.progress_ms is None:
            parts.append("its worker died again before making progress")
        parts.append(f"{counted(found.replayed, 'step')} replayed{_saved(found)}")
        if found.redone:
            parts += interrupted_text(found.redone, self._records(run), found.records)
        parts.append(_verified(found.verified))
        return "; ".join(parts)

    def _records(self, run: str) -> tuple[Record, ...]:
        if run not in self._journals:
            try:
                self._journals[run] = self._store.load_journal(run, since=0).records
            except (StoreError, UnknownRun):
                self._journals[run] = ()
        return self._journals[run]


def recoveries(store: Store, run: str | None = None, limit: int = 50) -> list[RecoveryEntry]:
    """Return the last entries of the log, newest first: of one run or of all. Raises Corrupt."""
    log = RecoveryLog(store)
    return [log.entry(entry) for entry in store.read_log(run=run, limit=limit)]


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
            return f"{moment(entry.at_ms):%Y-%m-%d %H:%M:%SZ}: {RecoveryLog(store).text_of(entry)}"
    return ""


def last_stacks(store: Store, run: str) -> tuple[str, ...]:
    """Return the stacks of the worker that last left a run, if it hung; else nothing."""
    try:
        left = [entry for entry in store.read_log(run=run) if entry.kind is Happening.LEFT]
        session = store.read_session(left[0].session) if left else None
    except StoreError:
        return ()
    seen = session.evidence if session is not None else None
    return seen.log if seen is not None and seen.is_hang else ()


def _saved(found: Recovery) -> str:
    if not found.decisions:
        return ""
    tokens = f", {counted(found.tokens, 'token')}" if found.tokens else ""
    return f" (saved {counted(found.decisions, 'model call')}{tokens})"


def _verified(found: Verified) -> str:
    if found.faults:
        return f"WRONG: {'; '.join(found.faults)}"
    parts = [counted(found.records, "record"), counted(found.outcomes, "outcome")]
    if found.keys:
        parts.append(counted(found.keys, "key"))
    if found.resources:
        parts.append(f"{found.checked} of {counted(found.resources, 'held resource')}")
    stale = f"; changed since: {', '.join(found.stale)}" if found.stale else ""
    return f"verified: {', '.join(parts)}{stale}"
