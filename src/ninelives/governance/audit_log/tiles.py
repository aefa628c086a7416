"""The audit log in documents: tiles of entries, each with the frontier of the tree after its last entry.

- `auditlog/state`: a `LogState`: the log's own id, whether it is on, and how often it was switched.
- `auditlog/tile/N`: a `Tile`. Only the last one grows, by compare-and-set: each write of it adds entries to
  the log, whole and in one sequence for all processes. A tile that is full is never written again.
- `auditlog/last`: about which tile is the last, to begin the search there. If it is missing or wrong, all
  tiles are listed.

Whether a tile is full depends on nothing but what is in it: so two writers never disagree about where the
next entry belongs. If we die here: an entry is in its tile, or it is not.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TypeVar

import msgspec
from msgspec import Raw, Struct

from ninelives.core.errors import Corrupt, StaleDocument
from ninelives.core.model.document import Document
from ninelives.governance.audit_log import merkle
from ninelives.store import DocumentStore
from ninelives.views import documents

PREFIX = "auditlog/"
STATE, LAST, TILE = f"{PREFIX}state", f"{PREFIX}last", f"{PREFIX}tile/"
ENTRY_BYTES = 24 * 1024
"""The largest entry. A full tile holds this much more than `_FULL_BYTES`, and still fits a document."""
TILE_ENTRIES = 64
_FULL_BYTES = 32 * 1024
_PAGE = 20
T = TypeVar("T")


class LogState(Struct, frozen=True, kw_only=True):
    """The body of `auditlog/state`. `switches` counts how often the log was switched on or off."""

    log: str
    is_on: bool = False
    switches: int = 0


class Tile(Struct, frozen=True, kw_only=True):
    """The body of a tile: the number of its first entry, its entries, and the frontier after them, in hex."""

    first: int
    entries: list[Raw]
    frontier: list[str]

    @property
    def size(self) -> int:
        """Return how many entries the log has up to the end of this tile."""
        return self.first + len(self.entries)

    @property
    def is_full(self) -> bool:
        """Return whether the next entry belongs into the next tile."""
        return len(self.entries) >= TILE_ENTRIES or sum(map(len, self.entries)) >= _FULL_BYTES

    @property
    def hashes(self) -> list[bytes]:
        """Return the frontier as bytes. Raises ValueError if it is none."""
        return [bytes.fromhex(one) for one in self.frontier]

    def with_entry(self, entry: bytes) -> Tile:
        """Return the tile with one more entry."""
        after = merkle.grown(self.hashes, self.size, merkle.leaf_hash(entry))
        return Tile(
            first=self.first, entries=[*self.entries, Raw(entry)], frontier=[one.hex() for one in after]
        )


class StoredTile(Struct, frozen=True):
    """A tile as it was read: its number, and the version to write it with; 0: it is not there yet."""

    number: int
    version: int
    tile: Tile


def body_of(found: Document, kind: type[T]) -> T:
    """Return a document's body. Raises Corrupt for one that is not what we write."""
    try:
        return msgspec.json.decode(found.body, type=kind)
    except msgspec.DecodeError as error:
        raise Corrupt(
            f"the document {found.name!r} is not what the audit log writes: {error}",
            remedy="Nothing was added to the audit log; `ninelives audit verify` shows what else was changed",
        ) from error


def strictly(found: Document | None, kind: type[T]) -> T | None:
    """Return a document's body as `body_of` does; None if there is no such document."""
    return body_of(found, kind) if found is not None else None


def read_state(store: DocumentStore) -> tuple[LogState | None, int]:
    """Return the log's state, and the version to write it with. Raises Corrupt."""
    found = documents.find(store, STATE)
    return strictly(found, LogState), found.version if found is not None else 0


def tile_name(number: int) -> str:
    """Return the name of a tile's document: names sort as numbers do."""
    return f"{TILE}{number:09d}"


def last_tile(store: DocumentStore) -> StoredTile:
    """Return the last tile; if there is none yet, an empty one with version 0. Raises Corrupt."""
    supposed = documents.decoded(documents.find(store, LAST), int) or 0
    after = tile_name(supposed - 1) if 0 < supposed < 10**9 else ""
    found = deque(_listed(store, after), maxlen=1)
    if not found and after:  # the supposed tile is not there
        found = deque(_listed(store, ""), maxlen=1)
    return found[0] if found else StoredTile(0, 0, Tile(first=0, entries=[], frontier=[]))


def tiles_from(store: DocumentStore, number: int) -> Iterator[StoredTile]:
    """Yield the tiles from a number on. Raises Corrupt."""
    return _listed(store, tile_name(number - 1) if number > 0 else "")


def write_tile(store: DocumentStore, number: int, version: int, tile: Tile) -> bool:
    """Write a tile that still has this version; return whether it had."""
    try:
        store.write_document(tile_name(number), msgspec.json.encode(tile), version=version)
    except StaleDocument:
        return False
    if version == 0:
        # CRASH: the next search begins at an earlier tile, and goes on from there.
        _suppose(store, number)
    return True


def _suppose(store: DocumentStore, number: int) -> None:
    found = documents.find(store, LAST)
    try:
        store.write_document(LAST, b"%d" % number, version=found.version if found is not None else 0)
    except StaleDocument:
        return  # another process has just done it


def _listed(store: DocumentStore, after: str) -> Iterator[StoredTile]:
    return map(_stored, documents.listing(store, TILE, after=after, page=_PAGE))


def _stored(document: Document) -> StoredTile:
    tile = body_of(document, Tile)
    digits = document.name.removeprefix(TILE)
    is_named = digits.isascii() and digits.isdigit() and tile_name(int(digits)) == document.name
    if not is_named or not _has_frontier(tile):
        raise Corrupt(
            f"the document {document.name!r} is no tile of the audit log",
            remedy="Nothing was added to the audit log; `ninelives audit verify` shows what else was changed",
        )
    return StoredTile(int(digits), document.version, tile)


def _has_frontier(tile: Tile) -> bool:
    try:
        return tile.first >= 0 and merkle.is_frontier(tile.hashes, tile.size)
    except ValueError:
        return False
