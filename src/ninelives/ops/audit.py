"""The integrity audit: everything that a store holds is read and checked, again and again, gently.

It walks by `Maintenance.verify_part`, one small part at a time, with pauses. How far it got is in a document,
so an audit that is killed goes on there, in any process. One process at a time audits a store
(`ops.periodic`); others stand back, and take over when its claim lapses.

Documents, all JSON:

- `audit/walk`: an `AuditWalk`, the audit under way, with what it found so far. Position and findings are
  written together, so a part is never counted twice; what was read since the last write is read again.
- `audit/last`: an `AuditResult`, the last audit that came to its end, for `status` and metrics. Its `seconds`
  count from its beginning to its end, pauses and deaths included.
- `audit/duplicates`: digests of the proved duplicates that were found so far. With each new one the counter
  `duplicates` (kind: recorded, once, key) grows in the same write: each is counted once, however often it is
  found.

If we die here: the next process goes on from the last position that was written.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Protocol

import msgspec
from msgspec.structs import replace

from ninelives.core.errors import LeaseLost, StaleDocument
from ninelives.core.model.counter import Counter
from ninelives.core.rules.duplicates import KINDS
from ninelives.ops.periodic import Periodic, Turn
from ninelives.store import WHOLE, DocumentStore, Fault, Progress, Sample, VerifiedPart
from ninelives.views import documents

NAME, WALK, LAST, DUPLICATES = "audit", "audit/walk", "audit/last", "audit/duplicates"
PART_ROWS = 100
RATE = 1000
"""Rows per second, if the caller does not say."""
_SAVE_SECONDS = 1.0
_PAUSES = 3
_SHOWN, _KNOWN = 50, 3000  # what fits into a document
_CHARACTERS = 300


class Auditable(DocumentStore, Protocol):
    """What is needed of a store."""

    def verify_part(
        self, position: str = "", *, limit: int = 100, sample: Sample = WHOLE
    ) -> VerifiedPart: ...


class Findings(msgspec.Struct, frozen=True, kw_only=True):
    """What an audit has read and found. `found` are the first faults; `faults` counts all of them."""

    started_ms: int
    share: float = 1.0
    runs: int = 0
    rows: int = 0
    faults: int = 0
    duplicates: dict[str, int] = {}
    found: tuple[Fault, ...] = ()


class AuditWalk(Findings, frozen=True, kw_only=True):
    """The body of `audit/walk`. `at` of `of` is how far it is, in runs; `salt` chooses its sample."""

    position: str = ""
    salt: int = 0
    at: int = 0
    of: int = 0


class AuditResult(Findings, frozen=True, kw_only=True):
    """The body of `audit/last`: the last audit that came to its end."""

    finished_ms: int
    seconds: float


def read_last(store: Auditable) -> AuditResult | None:
    """Return the last audit that came to its end; None if there was none."""
    return documents.read(store, LAST, AuditResult)[0]


def read_walk(store: Auditable) -> AuditWalk | None:
    """Return the audit that is under way, or was cut off; None if there is none."""
    return documents.read(store, WALK, AuditWalk)[0]


class Auditor:
    """Carries out audits. `rate` is in rows per second, `share` how much of the runs and blobs is read."""

    def __init__(
        self,
        store: Auditable,
        *,
        rate: float = RATE,
        share: float = 1.0,
        progress: Progress | None = None,
        sleep: Callable[[float], object] = time.sleep,
        save_seconds: float = _SAVE_SECONDS,
    ) -> None:
        self._store, self._rate, self._share = store, rate, share
        self._progress, self._sleep, self._save_seconds = progress, sleep, save_seconds

    def periodic(self, every_seconds: float, lapse_seconds: float = 60.0) -> Periodic:
        """Return when audits of this store are due, and which process carries them out."""
        return Periodic(self._store, NAME, every_seconds, lapse_seconds=lapse_seconds)

    def carry_out(self, turn: Turn) -> AuditResult:
        """AuditWalk to the end, from where the last audit was cut off. Raises LeaseLost, StoreUnavailable."""
        walk, version = documents.read(self._store, WALK, AuditWalk)
        if walk is None or walk.share != self._share or not walk.position:
            # Another sample each time, so that every run is read sooner or later.
            salt = walk.salt + 1 if walk is not None else 0
            walk = AuditWalk(started_ms=self._store.read_clock(), share=self._share, salt=salt)
        saved, new = time.monotonic(), tuple[Fault, ...]()
        while True:
            began = time.monotonic()
            sample = Sample(walk.share, walk.salt)
            part = self._store.verify_part(walk.position, limit=PART_ROWS, sample=sample)
            new += tuple(fault for fault in part.faults if fault.duplicate)
            walk = _grown(walk, part)
            took = time.monotonic() - began
            if self._progress is not None and walk.of:
                self._progress(walk.at, walk.of)
            turn.renew()
            if not part.position:
                break
            if new or time.monotonic() - saved >= self._save_seconds:
                self._count(new)
                version = self._save(WALK, walk, version)
                # CRASH: the parts since the last save are read again, and counted once.
                saved, new = time.monotonic(), ()
            # At least three times as long as the part took: most of the time is left to the others.
            self._sleep(max(part.rows / self._rate - took, _PAUSES * took))
        self._count(new)
        return self._finish(walk, version)

    def _finish(self, walk: AuditWalk, version: int) -> AuditResult:
        now_ms = self._store.read_clock()
        common = {name: getattr(walk, name) for name in Findings.__struct_fields__}
        seconds = max(0, now_ms - walk.started_ms) / 1000
        result = AuditResult(**common, finished_ms=now_ms, seconds=seconds)
        self._save(LAST, result, documents.read(self._store, LAST, AuditResult)[1])
        # CRASH: the result is there, and the walk still stands before its last part, which is read again.
        self._save(WALK, replace(walk, position=""), version)
        return result

    def _count(self, new: Sequence[Fault]) -> None:
        """Count duplicates that no audit has found before."""
        if not new:
            return
        found, version = documents.read(self._store, DUPLICATES, list[str])
        known = found or []
        fresh = {_digest(fault): fault.duplicate for fault in new}
        fresh = {digest: kind for digest, kind in fresh.items() if digest not in known}
        if fresh:
            kinds = list(fresh.values())
            counts = [Counter("duplicates", {"kind": kind}, kinds.count(kind)) for kind in sorted(set(kinds))]
            after = msgspec.json.encode([*known, *fresh][-_KNOWN:])
            _write(self._store, DUPLICATES, after, version, counts)

    def _save(self, name: str, body: Findings, version: int) -> int:
        return _write(self._store, name, msgspec.json.encode(body), version)


def _grown(walk: AuditWalk, part: VerifiedPart) -> AuditWalk:
    """Return the walk after one more part."""
    twice = dict(walk.duplicates or dict.fromkeys(KINDS, 0))
    for fault in part.faults:
        if fault.duplicate:
            twice[fault.duplicate] = twice.get(fault.duplicate, 0) + 1
    kept = (Fault(one.run, one.what[:_CHARACTERS], one.duplicate) for one in part.faults)
    return replace(
        walk,
        position=part.position,
        runs=walk.runs + part.runs,
        rows=walk.rows + part.rows,
        faults=walk.faults + len(part.faults),
        duplicates=twice,
        found=(*walk.found, *kept)[:_SHOWN],
        at=part.at if part.of else walk.at,
        of=part.of or walk.of,
    )


def _digest(fault: Fault) -> str:
    return blake2b(f"{fault.run}\0{fault.what}".encode(), digest_size=8).hexdigest()


def _write(store: Auditable, name: str, body: bytes, version: int, counts: Sequence[Counter] = ()) -> int:
    try:
        written = store.write_document(name, body, version=version, counts=counts)
    except StaleDocument as error:
        raise LeaseLost(f"another process audits the store: {error}") from error
    return written.version if written is not None else 0
