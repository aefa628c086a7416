"""Checksums: every record is chained to all records before it in its run.

check(n) = BLAKE2b-128 over (check(n-1), every field of record n). A run's row keeps the last check as
its head and the number of records as its length, so a changed, missing, added or reordered record
is found by reading the run once. The chain of an empty run starts from the run's id, so records
cannot be moved from one run to another.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import blake2b
from struct import Struct as Layout

from ninelives.core.errors import Corrupt
from ninelives.core.model import Kind, Record

CHECK_BYTES = 16
Draft = tuple[Kind, str, int, bytes, tuple[bytes, ...]]
"""A record without its number and check: kind, step, at_ms, body, blobs."""

_LAYOUT = Layout("<QQIIII")
_KINDS = {kind: kind.value.encode() for kind in Kind}


def start(run: str) -> bytes:
    """Return the chain before a run's first record."""
    return blake2b(run.encode(), digest_size=CHECK_BYTES, person=b"ninelives-run").digest()


def link(previous: bytes, seq: int, draft: Draft) -> bytes:
    """Return the check of a record that follows `previous`."""
    kind, step, at_ms, body, blobs = draft
    kind_bytes, step_bytes, blob_bytes = _KINDS[kind], step.encode(), b"".join(blobs)
    sizes = _LAYOUT.pack(seq, at_ms, len(kind_bytes), len(step_bytes), len(blob_bytes), len(body))
    content = b"".join((previous, sizes, kind_bytes, step_bytes, blob_bytes, body))
    return blake2b(content, digest_size=CHECK_BYTES).digest()


def sealed(length: int, head: bytes, draft: Draft) -> Record:
    """Number and chain one new record onto a run of that length and head."""
    return Record(length, *draft, link(head, length, draft))


def seal(length: int, head: bytes, drafts: Iterable[Draft]) -> tuple[Record, ...]:
    """Number and chain new records onto a run of that length and head."""
    records = []
    for seq, draft in enumerate(drafts, length):
        records.append(record := sealed(seq, head, draft))
        head = record.check
    return tuple(records)


def follows(previous: bytes, record: Record) -> bool:
    """Tell whether a record is what was written after the one with that check."""
    draft = (record.kind, record.step, record.at_ms, record.body, record.blobs)
    return link(previous, record.seq, draft) == record.check


def verify(
    run: str, before: bytes, first: int, records: Sequence[Record], *, length: int, head: bytes
) -> None:
    """Check that records `first` … `length - 1` follow `before` and end in `head`.

    Raises Corrupt naming the run and the first record that is not what was written.
    """
    check = before
    for seq, record in enumerate(records, first):
        if record.seq != seq:
            raise _corrupt(run, seq, f"record {seq} is missing (found {record.seq})")
        if not follows(check, record):
            raise _corrupt(run, seq, f"record {seq} fails its checksum")
        check = record.check
    if first + len(records) != length:
        raise _corrupt(
            run, first + len(records), f"{first + len(records)} records where {length} were acknowledged"
        )
    if check != head:
        raise _corrupt(run, length, "the last record is not the one the run's row names")


def _corrupt(run: str, seq: int, what: str) -> Corrupt:
    error = Corrupt(
        f"the journal is damaged: {what}",
        run=run,
        remedy="Nothing of it was used; other runs go on. Restore the store from a backup, or end this run",
    )
    error.seq = seq
    return error
