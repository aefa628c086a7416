"""The recovery log: deaths, takeovers and their results. Append-only, one chain per store.

check(n) = BLAKE2b-128 over (check(n-1), every field of entry n), and the store keeps the last check and the
number of entries. So a changed, removed, added or reordered entry is found. Pruning journals does not change
it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import blake2b
from struct import Struct as Layout

import msgspec

from ninelives.core.errors import Corrupt
from ninelives.core.model.log_entry import Happening, LogEntry, NewEntry
from ninelives.core.model.run import RunRow, State
from ninelives.core.model.session import Cause, Evidence, Session

START = blake2b(b"", digest_size=16, person=b"ninelives-log").digest()
"""The chain before the first entry."""

_LAYOUT = Layout("<QQIIII")


class SessionEnd(msgspec.Struct, frozen=True, kw_only=True):
    """The body of an ENDED entry."""

    cause: Cause
    host: str
    pid: int
    code: str
    renewed_ms: int
    lease_ms: int
    runs: int
    evidence: Evidence | None


class Left(msgspec.Struct, frozen=True, kw_only=True):
    """The body of a LEFT entry: the run as its session left it, and its count of deaths after that."""

    cause: Cause
    epoch: int
    records: int
    deaths: int
    solo_deaths: int
    was_solo: bool = msgspec.field(name="was_alone")


class Verified(msgspec.Struct, frozen=True, kw_only=True):
    """What was checked when a run was recovered: counts, and the faults found.

    The run holds `resources`, of which `checked` were examined and `stale` had changed; `keys` were compared
    with the dedup table.
    """

    records: int
    outcomes: int
    resources: int
    keys: int
    checked: int = 0
    stale: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()


class Recovery(msgspec.Struct, frozen=True, kw_only=True):
    """The body of a RECOVERED entry: the death, the takeover, what replay saved and what was done again.

    `replayed` counts the steps found recorded, `decisions` and `tokens` the model calls saved by that.
    `redone` names the steps that were running at the death: started again, or settled first. Times are the
    store's.
    """

    left_by: str
    cause: Cause | None
    died_ms: int
    renewed_ms: int
    taken_ms: int
    progress_ms: int | None
    deaths: int
    records: int
    replayed: int
    decisions: int
    tokens: int
    redone: tuple[str, ...]
    verified: Verified


class Completion(msgspec.Struct, frozen=True, kw_only=True):
    """The body of a COMPLETED entry."""

    state: State
    records: int


def link(previous: bytes, seq: int, at_ms: int, new: NewEntry | LogEntry) -> bytes:
    """Return the check of an entry that follows `previous`."""
    parts = (new.kind.value.encode(), new.run.encode(), new.session.encode(), new.body)
    sizes = _LAYOUT.pack(seq, at_ms, *map(len, parts))
    return blake2b(b"".join((previous, sizes, *parts)), digest_size=16).digest()


def seal(length: int, head: bytes, at_ms: int, new: Iterable[NewEntry]) -> list[LogEntry]:
    """Number and chain entries onto a log of that length and head."""
    sealed = []
    for seq, one in enumerate(new, length):
        head = link(head, seq, at_ms, one)
        named = (one.kind, one.run, one.session)
        sealed.append(LogEntry(seq, *named, at_ms, one.body, head))
    return sealed


def verify(before: bytes, entry: LogEntry) -> LogEntry:
    """Return the entry if it follows `before`. Raises Corrupt."""
    if link(before, entry.seq, entry.at_ms, entry) != entry.check:
        raise _corrupt(f"entry {entry.seq} is not what was written, or the one before it is not")
    return entry


def verify_all(entries: Sequence[LogEntry], *, length: int, head: bytes) -> None:
    """Check the whole log. Raises Corrupt naming the first damaged entry."""
    before = START
    for seq, entry in enumerate(entries):
        if entry.seq != seq:
            raise _corrupt(f"entry {seq} is missing")
        before = verify(before, entry).check
    if len(entries) != length or before != head:
        raise _corrupt(f"{len(entries)} entries, but {length} were written; or the last one was replaced")


def left(session: Session, before: RunRow, after: RunRow, cause: Cause) -> NewEntry:
    """Return the entry for a run whose session has ended."""
    body = Left(
        cause=cause,
        epoch=before.epoch,
        records=before.length,
        deaths=after.deaths,
        solo_deaths=after.solo_deaths,
        was_solo=before.is_alone,
    )
    return NewEntry(kind=Happening.LEFT, run=before.id, session=session.id, body=msgspec.json.encode(body))


def ended(session: Session, cause: Cause, evidence: Evidence | None, left_runs: int) -> NewEntry:
    """Return the entry for a session that ended while it had runs."""
    body = SessionEnd(
        cause=cause,
        host=session.machine,
        pid=session.pid,
        code=session.code,
        renewed_ms=session.renewed_ms,
        lease_ms=session.lease_ms,
        runs=left_runs,
        evidence=evidence,
    )
    return NewEntry(kind=Happening.ENDED, run="", session=session.id, body=msgspec.json.encode(body))


def _corrupt(what: str) -> Corrupt:
    return Corrupt(
        f"the recovery log is damaged: {what}",
        remedy="It was changed from outside; compare it with a backup. Runs are not affected",
    )
