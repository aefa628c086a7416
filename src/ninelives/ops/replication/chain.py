"""The segments of a bucket: which there are, whether they are whole, and where a restore may begin."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import msgspec
from msgspec import Struct

from ninelives.core.errors import Corrupt
from ninelives.ops.replication import segment
from ninelives.ops.replication.bucket import Bucket
from ninelives.ops.replication.segment import HEADER_BYTES, Segment, SegmentHeader

_BASES = "base/"


class Base(Struct, frozen=True, kw_only=True):
    """A snapshot that is complete: it began with segment `first`, and `last` completed it, at that time."""

    first: int
    last: int
    at_ms: int


def numbers(bucket: Bucket) -> list[int]:
    """Return the numbers of all segments, in order. Raises Corrupt when one is missing between others."""
    found = [segment.number_of(name) for name in bucket.names("seg/")]
    for before, after in pairwise(found):
        if after != before + 1:
            raise missing(before + 1)
    return found


def missing(number: int) -> Corrupt:
    """Return the error for a segment that is not there."""
    return Corrupt(
        f"segment {number} is missing from the bucket",
        remedy="Restore up to the segment before it (--at), or from another copy; copy to another prefix",
    )


def bases(bucket: Bucket) -> list[Base]:
    """Return the complete snapshots, oldest first."""
    found = (bucket.read(name) for name in bucket.names(_BASES))
    try:
        return [msgspec.json.decode(one.content, type=Base) for one in found if one is not None]
    except msgspec.DecodeError as error:
        raise Corrupt(
            f"a mark of a snapshot cannot be read: {error}", remedy="Remove it from base/"
        ) from error


def add_base(bucket: Bucket, base: Base) -> None:
    """Note that a snapshot is complete."""
    bucket.write(f"{_BASES}{base.first:012d}", msgspec.json.encode(base))


def headers(bucket: Bucket, wanted: Sequence[int]) -> Iterator[SegmentHeader]:
    """Read the headers of segments. Raises Corrupt."""
    for number in wanted:
        start = bucket.read_start(segment.name_of(number), HEADER_BYTES)
        if start is None:
            raise missing(number)
        header = segment.read_header(start, number)
        if header is None:
            header = load(bucket, number).header
        yield header


def load(bucket: Bucket, number: int) -> Segment:
    """Read and verify one segment. Raises Corrupt."""
    found = bucket.read(segment.name_of(number))
    if found is None:
        raise missing(number)
    return segment.read(found.content, number)


def read(bucket: Bucket, first: int, last: int) -> Iterator[Segment]:
    """Read segments in order, each verified and compared with the one before it. Raises Corrupt."""
    previous = ""
    for number in range(first, last + 1):
        found = load(bucket, number)
        if previous and found.header.previous != previous:
            raise Corrupt(
                f"segment {number} does not follow segment {number - 1}: one of them was replaced",
                remedy="Restore up to the segment before it (--at), or from another copy",
            )
        previous = found.digest
        yield found


def drop_old(bucket: Bucket, before_ms: int) -> int:
    """Remove what no restore to a time since then needs; return how many segments went."""
    known = bases(bucket)
    # The newest snapshot that was complete by then is the first one to keep, and one always stays.
    kept = max((one.first for one in known if one.at_ms <= before_ms), default=0)
    if not known or kept == 0:
        return 0
    old = [name for name in bucket.names("seg/") if segment.number_of(name) < kept]
    # CRASH: old segments without a mark, which the next call removes; marks go first, so none leads to a gap.
    bucket.remove(f"{_BASES}{one.first:012d}" for one in known if one.first < kept)
    bucket.remove(old)
    return len(old)
