"""A segment: one object of a store's chain in a bucket, with the changes that it adds to those before it.

An object is a line of JSON (the header) and a packed body. The header has the SHA-256 of the segment before
it, and that of its own body. So a flipped bit, a cut object, and a segment that is missing or foreign are
found. Parts are only decoded as the types below, with bounds: nothing in a segment is executed.

A piece of a run has its row, the records from `first` on, and all else that the run's capsule has. A piece
with `first` > the row's base continues the pieces before it. `generation` is the segment at which the
present snapshot began: from there on, the first piece of each run is whole.
"""

from __future__ import annotations

import hashlib
import zlib

import msgspec
from msgspec import Struct

from ninelives.core.errors import Corrupt
from ninelives.core.model.inbox import Item, Signal
from ninelives.core.model.key import Key
from ninelives.core.model.run import Record, RunRow

FORMAT, VERSION = "ninelives-segment", 1
HEADER_BYTES = 64 * 1024
"""How much of an object is read first: most headers are shorter."""
_MOST_BYTES = 4 << 30
_REMEDY = "Restore up to the segment before it (--at), or from another copy"


class Piece(Struct, frozen=True, tag="run", kw_only=True):
    """What is new of a run."""

    run: RunRow
    first: int
    records: tuple[Record, ...] = ()
    signals: tuple[Signal, ...] = ()
    last_signal: int = 0
    items: tuple[Item, ...] = ()
    keys: tuple[Key, ...] = ()


class LooseKey(Struct, frozen=True, tag="key"):
    """A business key that is in no piece: its run was forgotten, and the key must stay known."""

    key: Key


class Fact(Struct, frozen=True, tag="document"):
    """A document; without a body, it was removed."""

    name: str
    body: bytes | None


class BlobContent(Struct, frozen=True, tag="blob"):
    """A blob, as the store packs it."""

    digest: bytes
    content: bytes


Part = Piece | LooseKey | Fact | BlobContent


class Copy(Struct, frozen=True):
    """What a segment has of a run: the stamp and the end of the journal that were copied."""

    run: str
    stamp: str
    length: int
    head: str
    created_ms: int
    is_final: bool = False


class SegmentHeader(Struct, frozen=True, kw_only=True):
    """The header of a segment.

    With `complete_ms`, the chain up to here has everything that was committed before that moment, by the
    store's clock; 0: more of the same pass follows. `completes` is the generation whose snapshot this segment
    completes, or 0. `damaged` are the runs that could not be read.
    """

    store: str
    term: int
    owner: str
    number: int
    previous: str
    generation: int
    at_ms: int
    complete_ms: int = 0
    completes: int = 0
    copies: tuple[Copy, ...] = ()
    documents: dict[str, int] = {}
    damaged: tuple[str, ...] = ()
    body: str = ""
    body_bytes: int = 0
    format: str = FORMAT
    version: int = VERSION


class Segment(Struct, frozen=True):
    """A segment that was read and verified; `digest` is what the next one names it by."""

    header: SegmentHeader
    parts: tuple[Part, ...]
    digest: str


_HEADER = msgspec.json.Decoder(SegmentHeader)
_PARTS = msgspec.msgpack.Decoder(tuple[Part, ...])


def name_of(number: int) -> str:
    """Return the name of a segment's object."""
    return f"seg/{number:012d}"


def number_of(name: str) -> int:
    """Return the number of a segment, by its object's name. Raises Corrupt."""
    number = name.rpartition("/")[2]
    if not number.isdecimal():
        raise Corrupt(f"the bucket holds an object {name!r} that is no segment", remedy="Remove it")
    return int(number)


def written(header: SegmentHeader, parts: tuple[Part, ...]) -> tuple[bytes, str]:
    """Return a segment's object, and its digest."""
    body = msgspec.msgpack.encode(parts)
    full = msgspec.structs.replace(header, body=hashlib.sha256(body).hexdigest(), body_bytes=len(body))
    content = msgspec.json.encode(full) + b"\n" + zlib.compress(body, 1)
    return content, hashlib.sha256(content).hexdigest()


def read_header(content: bytes, number: int) -> SegmentHeader | None:
    """Return the header of an object that begins with this content; None: it is longer. Raises Corrupt."""
    line, end, _ = content.partition(b"\n")
    if not end:
        return None
    try:
        header = _HEADER.decode(line)
    except msgspec.DecodeError as error:
        raise _damaged(number, f"its header cannot be read ({error})") from error
    if header.format != FORMAT or header.version > VERSION:
        raise Corrupt(
            f"segment {number} has the format {header.format!r} {header.version}", remedy="Upgrade ninelives"
        )
    if header.number != number:
        raise _damaged(number, f"it says that it is segment {header.number}")
    return header


def read(content: bytes, number: int) -> Segment:
    """Read and verify a segment. Raises Corrupt."""
    header = read_header(content, number)
    if header is None or header.body_bytes > _MOST_BYTES:
        raise _damaged(number, "it has no whole header")
    unpacking = zlib.decompressobj()
    try:
        # One byte more than it says: a body that is longer must not fill the memory before it is noticed.
        body = unpacking.decompress(content[content.index(b"\n") + 1 :], header.body_bytes + 1)
    except zlib.error as error:
        raise _damaged(number, f"its body cannot be unpacked ({error})") from error
    if hashlib.sha256(body).hexdigest() != header.body:
        raise _damaged(number, "its body is not what was written")
    try:
        parts = _PARTS.decode(body)
    except msgspec.DecodeError as error:
        raise _damaged(number, f"its body cannot be read ({error})") from error
    return Segment(header, parts, hashlib.sha256(content).hexdigest())


def _damaged(number: int, what: str) -> Corrupt:
    return Corrupt(f"segment {number} is damaged: {what}", remedy=_REMEDY)
