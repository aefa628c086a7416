"""The file in which runs leave a store: JSON lines, packed with gzip, checked from first line to last.

A header says which store it comes from. Then come blobs, each once and before the first run that refers to
it, and runs: a line for the row, then its records, signals, items and keys. The last line has the number of
lines and the SHA-256 of all of them.

Such a file may come from anyone. Reading is bounded in every direction: the length of a line, and the size
of the whole in proportion to the packed file. A line is accepted only if writing it again gives the same
bytes, so that nothing in it is passed over. Nothing is ever executed: values stay encoded, and no name of a
type or a module is read. What is in the capsules is checked by `core.rules.capsules`.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterable, Iterator
from hashlib import sha256
from typing import BinaryIO, TypeVar

import msgspec
from msgspec import Struct

from ninelives.core.errors import BadFile
from ninelives.core.model.capsule import Capsule
from ninelives.core.model.inbox import Item, Signal
from ninelives.core.model.key import Key
from ninelives.core.model.run import Record, RunRow
from ninelives.core.rules import capsules as rules
from ninelives.core.values import blobs

Part = TypeVar("Part")
FORMAT, VERSION = "ninelives-export", 1
LINE_BYTES = 96 * 1024 * 1024
"""The longest line: a blob of the largest size, as base64."""
FREE_BYTES, RATIO = 1024 * 1024 * 1024, 200
"""A file may unpack to this size, or to this many times its own, whichever is more."""
_MOST_PARTS = 50_000_000


class Header(Struct, frozen=True, kw_only=True, tag="header", tag_field="line"):
    """The first line. `store` is the store's id, `schema` its version; `notes` are the writer's own."""

    format: str = FORMAT
    version: int = VERSION
    store: str
    schema: int
    at_ms: int
    ninelives: str
    notes: dict[str, str] = {}


class BlobLine(Struct, frozen=True, tag="blob", tag_field="line"):
    """A large value."""

    digest: str
    content: bytes


class RunLine(Struct, frozen=True, tag="run", tag_field="line"):
    """A run's row, and how many lines of each kind follow it."""

    run: RunRow
    records: int
    signals: int
    last_signal: int
    items: int
    keys: int


class RecordLine(Struct, frozen=True, tag="record", tag_field="line"):
    """A record of a run's journal."""

    record: Record


class SignalLine(Struct, frozen=True, tag="signal", tag_field="line"):
    """A signal that was sent to a run."""

    signal: Signal


class ItemLine(Struct, frozen=True, tag="item", tag_field="line"):
    """An inbox item of a run."""

    item: Item


class KeyLine(Struct, frozen=True, tag="key", tag_field="line"):
    """A business key of a run."""

    key: Key


class Footer(Struct, frozen=True, kw_only=True, tag="end", tag_field="line"):
    """The last line: how many lines and runs came before it, and the SHA-256 of these lines."""

    lines: int
    runs: int
    sha256: str


_Line = Header | BlobLine | RunLine | RecordLine | SignalLine | ItemLine | KeyLine | Footer
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_Line).decode


def write(target: BinaryIO, header: Header, parts: Iterable[BlobLine | Capsule]) -> Footer:
    """Write a file: the header, blobs and capsules in the order given, the footer."""
    # No time and no name: the same contents are the same bytes.
    with gzip.GzipFile(filename="", mode="wb", fileobj=target, compresslevel=6, mtime=0) as packed:
        digest, lines, runs = sha256(), 0, 0
        for line in _lines(header, parts):
            raw = _encode(line) + b"\n"
            packed.write(raw)
            digest.update(raw)
            lines += 1
            runs += isinstance(line, RunLine)
        footer = Footer(lines=lines, runs=runs, sha256=digest.hexdigest())
        packed.write(_encode(footer) + b"\n")
    return footer


def _lines(header: Header, parts: Iterable[BlobLine | Capsule]) -> Iterator[_Line]:
    yield header
    for part in parts:
        if isinstance(part, BlobLine):
            yield part
            continue
        counts = (len(part.records), len(part.signals), part.last_signal, len(part.items), len(part.keys))
        yield RunLine(part.run, *counts)
        yield from map(RecordLine, part.records)
        yield from map(SignalLine, part.signals)
        yield from map(ItemLine, part.items)
        yield from map(KeyLine, part.keys)


class Reader:
    """Reads a file from its beginning, in parts; the caller may trust them only once all were read."""

    def __init__(self, source: BinaryIO, name: str, size: int) -> None:
        """Read the header. `size` is that of the packed file. Raises BadFile."""
        self._name, self._most = name, max(FREE_BYTES, RATIO * size)
        self._packed = gzip.GzipFile(fileobj=source, mode="rb")
        self._digest, self._lines, self._bytes = sha256(), 0, 0
        self.footer: Footer | None = None
        """The last line, once it was read and everything fits it."""
        first = self._next()
        if not isinstance(first, Header) or first.format != FORMAT:
            raise self._bad("it is not an export of Nine Lives")
        if first.version != VERSION:
            raise self._bad(f"it has version {first.version}; this Nine Lives reads version {VERSION}")
        self.header = first

    def parts(self) -> Iterator[BlobLine | Capsule]:
        """Yield blobs and capsules, each verified by itself. Raises BadFile; what `core.rules` refuses."""
        runs = 0
        while not isinstance(line := self._next(), Footer):
            if isinstance(line, BlobLine):
                if blobs.digest(line.content).hex() != line.digest or len(line.content) > blobs.MAX_BYTES:
                    raise self._bad(f"line {self._lines}: the blob is not what its name says")
                yield line
            elif isinstance(line, RunLine):
                runs += 1
                yield self._capsule(line)
            else:
                raise self._bad(f"line {self._lines} is out of place")
        if (line.lines, line.runs) != (self._lines, runs) or line.sha256 != self._digest.hexdigest():
            raise self._bad("its last line does not fit the others: it was changed")
        if self._read(1):
            raise self._bad("something follows its last line")
        self.footer = line

    def _capsule(self, line: RunLine) -> Capsule:
        counts = (line.records, line.signals, line.items, line.keys)
        if any(count < 0 for count in counts) or sum(counts) > _MOST_PARTS:
            raise self._bad(f"line {self._lines}: a run cannot have that many parts")
        capsule = Capsule(
            run=line.run,
            records=tuple(self._expect(RecordLine).record for _ in range(line.records)),
            signals=tuple(self._expect(SignalLine).signal for _ in range(line.signals)),
            last_signal=line.last_signal,
            items=tuple(self._expect(ItemLine).item for _ in range(line.items)),
            keys=tuple(self._expect(KeyLine).key for _ in range(line.keys)),
        )
        if (fault := rules.fault_in_capsule(capsule)) is not None:
            raise fault
        return capsule

    def _expect(self, kind: type[Part]) -> Part:
        line = self._next()
        if not isinstance(line, kind):
            raise self._bad(f"line {self._lines} is out of place")
        return line

    def _next(self) -> _Line:
        raw = self._read(LINE_BYTES)
        if not raw.endswith(b"\n"):
            raise self._bad("it is cut short" if len(raw) < LINE_BYTES else "a line is too long")
        try:
            line: _Line = _decode(raw)
        except (msgspec.DecodeError, ValueError, OverflowError, RecursionError) as error:
            raise self._bad(f"line {self._lines + 1} cannot be read: {error}") from None
        # Whatever decoding passes over or reads in two ways would not be checked: fields that we do not know,
        # a field twice, white space.
        if _encode(line) + b"\n" != raw:
            raise self._bad(f"line {self._lines + 1} is not as Nine Lives writes it")
        if not isinstance(line, Footer):
            self._digest.update(raw)
            self._lines += 1
        return line

    def _read(self, most: int) -> bytes:
        try:
            raw = self._packed.readline(most)
        except (OSError, EOFError, zlib.error) as error:
            raise self._bad(f"it cannot be unpacked: {error}") from None
        self._bytes += len(raw)
        if self._bytes > self._most:
            raise self._bad(f"it unpacks to more than {self._most:,} bytes")
        return raw

    def _bad(self, what: str) -> BadFile:
        return BadFile(
            f"{self._name} is refused: {what}", remedy="Nothing was imported from it. Export it again"
        )
