"""What a store knows of its copies.

`replication/NAME` is what a replicator reports: status and metrics read it. It is written every few seconds
at most. If the process dies, the document stays as it was: readers compare `written_ms` with the time, and
add the difference to the lag.

`chain/DIGEST` is the end of the chain in one bucket. It is written before each segment, so a bucket whose end
the store does not know was continued by another store: by a live copy of this one, or by this one before it
was put back. Two stores in one bucket would be restored as one that never was.
"""

from __future__ import annotations

from hashlib import blake2b

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ninelives.core.errors import StaleDocument
from ninelives.store import DocumentStore
from ninelives.views import documents

PREFIX, CHAINS = "replication/", "chain/"
_MOST_FOLLOWING = 30


class CopyReport(Struct, frozen=True, kw_only=True):
    """The body of the document. `lag_seconds`: the age of the oldest commit that may not be copied yet.

    `segments` and `errors` (by reason) only grow. `segment` and `digest` are the last one that was written.
    `is_refused`: nothing is copied, for the reason in `fault`; what else it says is of before.
    """

    destination: str
    owner: str
    written_ms: int
    lag_seconds: float = 0.0
    complete_ms: int = 0
    last_success_ms: int = 0
    segments: int = 0
    errors: dict[str, int] = {}
    segment: int = 0
    digest: str = ""
    snapshot_ms: int = 0
    damaged: tuple[str, ...] = ()
    fault: str = ""
    is_refused: bool = False


def read(store: DocumentStore, name: str) -> tuple[CopyReport | None, int]:
    """Return a replicator's last report, and the version of its document; 0: there is none."""
    return documents.read(store, PREFIX + name, CopyReport)


def write(store: DocumentStore, name: str, report: CopyReport) -> None:
    """Write a report. A write that another replicator overtook is given up: the next one follows soon."""
    _, version = read(store, name)
    try:
        store.write_document(PREFIX + name, msgspec.json.encode(report), version=version)
    except StaleDocument:
        return


def refuse(store: DocumentStore, name: str, destination: str, fault: str, now_ms: int) -> None:
    """Report that a replicator cannot begin; its lag grows from its last report on, or from now."""
    known, _ = read(store, name)
    if known is None:
        known = CopyReport(destination=destination, owner="", written_ms=now_ms)
    write(store, name, replace(known, fault=fault[:500], is_refused=True))


class KnownEnd(Struct, frozen=True, kw_only=True):
    """The body of `chain/DIGEST`: the last segment, and those of which one may come next.

    More than one, if a process died before it knew whether its own was written.
    """

    bucket: str
    number: int = 0
    digest: str = ""
    following: tuple[str, ...] = ()


class ChainEnd:
    """The end of one bucket's chain, as the store knows it: `learn` it first, `plan` before each segment."""

    def __init__(self, store: DocumentStore, bucket: str) -> None:
        self._store, self._bucket = store, bucket
        self._name = f"{CHAINS}{blake2b(bucket.encode(), digest_size=12).hexdigest()}"
        self._ends, self._version = KnownEnd(bucket=bucket), 0

    def learn(self, number: int, digest: str) -> bool:
        """Read what is known; return whether the bucket may end with this segment."""
        known, self._version = documents.read(self._store, self._name, KnownEnd)
        self._ends = known or KnownEnd(bucket=self._bucket)
        if known is None or number < known.number:
            return True  # nothing was copied there, or the end of it is lost: that is judged elsewhere
        if number == known.number:
            return digest == known.digest
        return number == known.number + 1 and digest in known.following

    def plan(self, number: int, digest: str, following: str) -> bool:
        """Note a segment that may follow the last one; return False if another process has noted something.

        If we die here: the segment may be written or not, also later, by a server that is slow.
        """
        is_same = (number, digest) == (self._ends.number, self._ends.digest)
        before = self._ends.following[-_MOST_FOLLOWING:] if is_same else ()
        ends = KnownEnd(bucket=self._bucket, number=number, digest=digest, following=(*before, following))
        try:
            body = msgspec.json.encode(ends)
            written = self._store.write_document(self._name, body, version=self._version)
        except StaleDocument:
            return False
        self._ends, self._version = ends, written.version if written is not None else 0
        return True
