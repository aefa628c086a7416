"""The recovery log: deaths, takeovers and their results. One chain per store; only `prune` removes entries.

check(n) = BLAKE2b-128 over (check(n-1), every field of entry n), and the store keeps the last check and the
number of entries. So a changed, removed, added or reordered entry is found. Pruning journals does not change
it. When the oldest entries are removed, the store keeps the number of the first one that is left and the
check of the one before it: its base.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import blake2b
from struct import Struct as Layout
from typing import NamedTuple

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
    """The body of a LEFT entry: the run as its session left it, and its count of deaths after that.

    `renewed_ms` is the session's last renewal, `head` that of the journal, in hex. The fields with defaults
    are not in entries of schema 2.
    """

    cause: Cause
    epoch: int
    records: int
    deaths: int
    solo_deaths: int
    was_solo: bool = msgspec.field(name="was_alone")
    agent: str = ""
    renewed_ms: int = 0
    head: str = ""


class Verified(msgspec.Struct, frozen=True, kw_only=True):
    """What was checked when a run was recovered: counts, and the faults found.

    The run holds `resources`, of which `checked` were examined and `stale` had changed; `keys` were compared
    with the dedup table. `compared`: the journal was compared with the one that the last worker left.
    """

    records: int
    outcomes: int
    resources: int
    keys: int
    checked: int = 0
    stale: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()
    compared: bool = False


class Recovery(msgspec.Struct, frozen=True, kw_only=True):
    """The body of a RECOVERED entry: the death, the takeover, what replay saved and what was done again.

    `replayed` counts the steps found recorded, `decisions` and `tokens` the model calls saved by that.
    `redone` names the steps that were running at the death: started again, or settled first. Times are the
    store's. `saved_ms` is how long the replayed steps had taken, `redone_kinds` how many of all steps that
    were running are of a kind (`core.rules.counting`). `outcome` is recovered, escalated, quarantined, lost,
    or empty while it is open: the run was given back without progress. `resumed_ms` is when the run first
    wrote anything: replay was over. The fields with defaults are not in entries of schema 2.
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
    agent: str = ""
    outcome: str = ""
    saved_ms: int = 0
    redone_kinds: dict[str, int] = {}
    resumed_ms: int | None = None

    @property
    def stood_still_ms(self) -> int | None:
        """How long the run stood still, from the notice of the death until it wrote again; None if unknown.

        What its first new step took then is work, and not the recovery's.
        """
        if self.progress_ms is None or not self.died_ms:
            return None
        until_ms = self.progress_ms if self.resumed_ms is None else self.resumed_ms
        return max(0, until_ms - self.died_ms)  # two clocks may disagree by a little


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


class LogBase(NamedTuple):
    """Where a log begins: the number of its first entry, and the check of the one before it."""

    seq: int = 0
    check: bytes = START


WHOLE = LogBase()
"""The base of a log from which nothing was removed."""


def base_after(base: LogBase, removed: Sequence[LogEntry]) -> LogBase:
    """Return the base of a log after its oldest entries are removed.

    Raises Corrupt, since nothing damaged may be removed as if it were only old.
    """
    for entry in removed:
        if entry.seq != base.seq:
            raise _corrupt(f"entry {base.seq} is missing")
        base = LogBase(base.seq + 1, verify(base.check, entry).check)
    return base


def verify_all(entries: Sequence[LogEntry], *, length: int, head: bytes, base: LogBase = WHOLE) -> None:
    """Check the whole log. Raises Corrupt naming the first damaged entry."""
    before = base.check
    for seq, entry in enumerate(entries, base.seq):
        if entry.seq != seq:
            raise _corrupt(f"entry {seq} is missing")
        before = verify(before, entry).check
    if base.seq + len(entries) != length or before != head:
        there = base.seq + len(entries)
        raise _corrupt(f"{there} entries, but {length} were written; or the last one was replaced")


def left(session: Session, before: RunRow, after: RunRow, cause: Cause) -> NewEntry:
    """Return the entry for a run whose session has ended."""
    body = Left(
        cause=cause,
        epoch=before.epoch,
        records=before.length,
        deaths=after.deaths,
        solo_deaths=after.solo_deaths,
        was_solo=before.is_alone,
        agent=before.agent,
        renewed_ms=session.renewed_ms,
        head=before.head.hex(),
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
