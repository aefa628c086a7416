"""Which process may write to a bucket: one at a time, by a small object that is only ever replaced.

A replicator takes the next term, unless another one renewed its own lately and may be alive. The term says
which process works; the fence is the chain itself. A new owner first writes a segment at the next number: a
replicator that was stopped meanwhile finds that number taken (`create` refuses it), and ends.
"""

from __future__ import annotations

import os
import secrets

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ninelives.core.errors import Corrupt, NineLivesError, UsageError
from ninelives.engine.machine import host, is_missed
from ninelives.ops.replication.bucket import Bucket, NameTaken, StoredObject

NAME = "term.json"
LAPSE_MS = 30_000
"""A term that was not renewed for this long has lapsed."""


class Fenced(NineLivesError):
    """Another replicator writes to this bucket."""


class Term(Struct, frozen=True, kw_only=True):
    """The content of the object. With `segment`, all that was committed before `complete_ms` is copied.

    `counted` is how many runs the store had created and ended until then, also forgotten ones. A store that
    says less later was replaced by an older copy.
    """

    store: str
    term: int
    owner: str
    host: str
    pid: int
    renewed_ms: int
    complete_ms: int = 0
    segment: int = 0
    counted: int = 0
    is_over: bool = False


class OwnTerm:
    """The term of this process."""

    def __init__(self, bucket: Bucket, term: Term, version: str) -> None:
        self._bucket, self._version, self.term = bucket, version, term

    def renew(
        self, now_ms: int, complete_ms: int, segment: int, counted: int, *, is_over: bool = False
    ) -> None:
        """Say that this process is alive, and how far it got. Raises Fenced."""
        self.term = replace(
            self.term,
            renewed_ms=now_ms,
            complete_ms=complete_ms,
            segment=segment,
            counted=counted,
            is_over=is_over,
        )
        try:
            # CRASH: renewed or not; a dead owner's term lapses.
            self._version = self._bucket.replace(NAME, msgspec.json.encode(self.term), self._version)
        except NameTaken:
            raise fenced(self._bucket, read(self._bucket)) from None

    def give_back(self, now_ms: int) -> None:
        """Let another process have the term at once: this one has copied nothing. Raises Fenced."""
        known = self.term
        self.renew(now_ms, known.complete_ms, known.segment, known.counted, is_over=True)


def new_owner() -> str:
    """Return a name for a replicator."""
    return secrets.token_hex(8)


def take(bucket: Bucket, store: str, now_ms: int, owner: str) -> OwnTerm:
    """Take the next term of a bucket. Raises Fenced; UsageError when it holds another store's copy.

    If a call failed, it is repeated with the same owner: the term may have been written.
    """
    found = bucket.read(NAME)
    known = _decoded(found) if found is not None else None
    if found is not None and known is not None and known.owner == owner:
        return OwnTerm(bucket, known, found.version)
    if known is not None:
        require_store(bucket, known.store, store)
        is_lapsed = known.is_over or now_ms - known.renewed_ms >= LAPSE_MS
        if not is_lapsed and not is_missed(known.host, known.pid):
            raise fenced(bucket, known)
    number = known.term + 1 if known is not None else 1
    own = Term(store=store, term=number, owner=owner, host=host(), pid=os.getpid(), renewed_ms=now_ms)
    if known is not None:
        own = replace(own, complete_ms=known.complete_ms, segment=known.segment, counted=known.counted)
    content = msgspec.json.encode(own)
    try:
        # CRASH: a term without a segment; it lapses, or its owner is seen to be dead.
        version = bucket.replace(NAME, content, found.version) if found else bucket.create(NAME, content)
    except NameTaken:
        raise fenced(bucket, read(bucket)) from None
    return OwnTerm(bucket, own, version)


def read(bucket: Bucket) -> Term | None:
    """Return the bucket's last term. Raises Corrupt."""
    found = bucket.read(NAME)
    return _decoded(found) if found is not None else None


def require_store(bucket: Bucket, known: str, store: str) -> None:
    """Raise UsageError when a bucket holds the copy of another store."""
    if known != store:
        raise UsageError(
            f"{bucket.url} holds the copy of another store (or of this one before it was restored)",
            remedy="Copy to another prefix; keep this one for as long as you may want to restore from it",
        )


def fenced(bucket: Bucket, other: Term | None) -> Fenced:
    """Return the error of a replicator that lost its bucket to another one."""
    named = (
        f"process {other.pid} on {other.host.partition('~')[0]}" if other is not None else "another process"
    )
    return Fenced(
        f"{named} copies to {bucket.url}; this process has stopped and changes nothing there",
        remedy=f"One replicator is enough. If that one is dead, wait {LAPSE_MS // 1000} s and start again",
    )


def _decoded(found: StoredObject) -> Term:
    try:
        return msgspec.json.decode(found.content, type=Term)
    except msgspec.DecodeError as error:
        raise Corrupt(
            f"{NAME} in the bucket cannot be read: {error}", remedy="Copy to another prefix"
        ) from error
