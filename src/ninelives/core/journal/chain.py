"""Checksums: every record is chained to all records before it in its run.

check(n) = BLAKE2b-128 over (check(n-1), every field of record n). A run's row keeps the last check as
its head and the number of records as its length, so one read of the run finds a changed, missing, added or
reordered record. The chain starts from the run's id, so records cannot be moved from one run to another.
See docs/decisions/0001.

Records of schema 1 have no epoch and are checked by the rule of schema 1. All later records have one, and
come after them. The two rules hash disjoint contents, so no record passes the check of the other rule.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import blake2b
from struct import Struct as Layout

from ninelives.core.errors import Corrupt
from ninelives.core.model.run import Kind, Record, StepKind

CHECK_BYTES = 16
Whole = tuple[Kind, str, int, bytes, tuple[bytes, ...], StepKind | None, int | None]
"""A record without number, epoch and check: kind, step, at_ms, body, blobs, step_kind and took_ms."""
Draft = tuple[Kind, str, int, bytes, tuple[bytes, ...]] | Whole
"""The same; one that is of no step may leave out the last two."""

_FIRST = Layout("<QQIIII")
_SECOND = Layout("<QQQQIII").pack
_MARK = b"ninelives-schema-2:"  # keeps the contents of the two rules disjoint
_BEGUN = blake2b(_MARK, digest_size=CHECK_BYTES)
_KINDS = {kind: kind.value.encode() for kind in Kind}
_WORDS = {
    (kind, of): f"{kind.value}:{of.value if of is not None else ''}:".encode()
    for kind in Kind
    for of in (None, *StepKind)
}


def start(run: str) -> bytes:
    """Return the check that a run's first record follows."""
    return blake2b(run.encode(), digest_size=CHECK_BYTES, person=b"ninelives-run").digest()


def link(previous: bytes, seq: int, draft: Draft, epoch: int | None) -> bytes:
    """Return the check of a record that follows `previous`; without an epoch, by the rule of schema 1."""
    return _first_link(previous, seq, draft) if epoch is None else sealed(seq, previous, draft, epoch).check


def _first_link(previous: bytes, seq: int, draft: Draft) -> bytes:
    kind, step, at_ms, body, blobs = draft[:5]
    kind_bytes, step_bytes, blob_bytes = _KINDS[kind], step.encode(), b"".join(blobs)
    sizes = _FIRST.pack(seq, at_ms, len(kind_bytes), len(step_bytes), len(blob_bytes), len(body))
    content = b"".join((previous, sizes, kind_bytes, step_bytes, blob_bytes, body))
    return blake2b(content, digest_size=CHECK_BYTES).digest()


def sealed(seq: int, previous: bytes, draft: Draft, epoch: int) -> Record:
    """Number one new record and chain it onto the one before it."""
    kind, step, at_ms, body, blobs, of, took = draft if len(draft) == 7 else (*draft, None, None)
    step_bytes, blob_bytes = step.encode(), b"".join(blobs)
    # Nothing and zero must differ: a record that took 0 ms is not one without a duration.
    took_more = 0 if took is None else took + 1
    # The sizes are hashed before the contents: no byte can move from one field to the next unnoticed.
    sizes = _SECOND(seq, at_ms, epoch, took_more, len(step_bytes), len(blob_bytes), len(body))
    made = _BEGUN.copy()  # quicker than to begin each time
    made.update(b"".join((previous, sizes, _WORDS[kind, of], step_bytes, blob_bytes, body)))
    return Record(seq, kind, step, at_ms, body, blobs, made.digest(), of, epoch, took)


def seal(length: int, head: bytes, drafts: Iterable[Draft], epoch: int = 0) -> tuple[Record, ...]:
    """Number and chain new records of one epoch onto a run of that length and head."""
    records = []
    for seq, draft in enumerate(drafts, length):
        records.append(record := sealed(seq, head, draft, epoch))
        head = record.check
    return tuple(records)


def follows(previous: bytes, record: Record) -> bool:
    """Return whether a record is intact and follows the one with that check."""
    return link(previous, record.seq, draft_of(record), record.epoch) == record.check


def draft_of(record: Record) -> Whole:
    """Return a record's content, without its number, epoch and check."""
    return (
        record.kind,
        record.step,
        record.at_ms,
        record.body,
        record.blobs,
        record.step_kind,
        record.took_ms,
    )


def verify(
    run: str, before: bytes, first: int, records: Sequence[Record], *, length: int, head: bytes
) -> None:
    """Check that records `first` … `length - 1` follow `before` and end in `head`.

    Raises Corrupt naming the run and the first damaged record.
    """
    check, is_late = before, False
    for seq, record in enumerate(records, first):
        if record.seq != seq:
            raise _corrupt(run, seq, f"record {seq} is missing (found {record.seq})")
        if record.epoch is not None:
            is_late = True
        # Stores append no record without an epoch: an old one behind a new one was put there by damage.
        elif is_late:
            raise _corrupt(run, seq, f"record {seq} has an older format than the one before it")
        if not follows(check, record):
            raise _corrupt(run, seq, f"record {seq} fails its checksum")
        check = record.check
    # Whole links prove no completeness: a journal whose end is lost is a sound chain, only a shorter one.
    if first + len(records) != length:
        raise _corrupt(
            run, first + len(records), f"{first + len(records)} records, but {length} were acknowledged"
        )
    if check != head:
        raise _corrupt(run, length, "the last record is not the one that the run's row names")


def missing(run: str, seq: int) -> Corrupt:
    """Return the error for a record that a journal lacks."""
    return _corrupt(run, seq, f"record {seq} is missing")


def _corrupt(run: str, seq: int, what: str) -> Corrupt:
    error = Corrupt(
        f"the journal is damaged: {what}",
        run=run,
        remedy="Nothing of it was used; other runs continue. "
        "Restore the store from a backup, or end this run",
    )
    error.seq = seq
    return error
