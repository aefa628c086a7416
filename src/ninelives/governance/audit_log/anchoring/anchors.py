"""Anchors: tree heads of the audit log, kept where the store's writers cannot change them.

An anchor is anything that keeps named objects: a directory on another mount, a bucket, a git repository
(`anchoring.git_anchor`). Each tree head is an object of its own, named by the log and its size, and is never
written again. A log that does not continue what was anchored last is not anchored: it was changed.

If we die here: the tree head is anchored, or the next one is.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from msgspec import Struct

from ninelives.core.errors import Corrupt, StaleDocument, UsageError
from ninelives.governance.audit_log import merkle, tiles
from ninelives.governance.audit_log.anchoring.heads import Note, TreeHead, read_note, write_note
from ninelives.governance.audit_log.tiles import PREFIX, StoredTile
from ninelives.store import DocumentStore
from ninelives.views import documents

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

ANCHORS = f"{PREFIX}anchors"
_FOLDER = "ninelives-audit/"


class Objects(Protocol):
    """What is needed of an anchor."""

    @property
    def url(self) -> str: ...
    def read(self, name: str) -> Any: ...
    def create(self, name: str, content: bytes) -> object: ...
    def names(self, prefix: str, after: str = "") -> list[str]: ...


class LastAnchored(Struct, frozen=True):
    """What was anchored last at some URL, for `status`: no proof of anything."""

    size: int
    at_ms: int


def head_of(store: DocumentStore) -> TreeHead:
    """Return the tree head of now. Raises UsageError if there is no log."""
    state, _ = tiles.read_state(store)
    if state is None:
        raise UsageError("the store has no audit log", remedy="Switch it on with `ninelives audit on`")
    tile = tiles.last_tile(store).tile
    return TreeHead(state.log, tile.size, merkle.root_of(tile.hashes))


def anchor(store: DocumentStore, target: Objects, head: TreeHead, key: Ed25519PrivateKey | None) -> bool:
    """Keep a tree head at an anchor; return whether it was not there yet.

    Raises Corrupt if the log does not continue what is anchored there.
    """
    last = next(_newest(target, head.log), None)
    if last is not None:
        require_continues(store, last.head, head, target.url)
    is_new = last is None or last.head.size < head.size
    if is_new:
        _put(target, object_name(head), write_note(head, key), head)
        # CRASH: it is anchored, and `status` shows the one before.
    _note(store, target.url, head)
    return is_new


def notes(target: Objects) -> Iterator[tuple[str, bytes]]:
    """Yield all tree heads that are anchored somewhere, of whichever log, with their names."""
    for name in target.names(_FOLDER):
        found = target.read(name)
        if found is not None:
            yield name, found.content


def object_name(head: TreeHead) -> str:
    """Return the name of a tree head at an anchor."""
    return f"{_FOLDER}{head.log}/{head.size:018d}"


def read_anchored(store: DocumentStore) -> dict[str, LastAnchored]:
    """Return what was anchored last, by URL, as `status` shows it."""
    return documents.decoded(documents.find(store, ANCHORS), dict[str, LastAnchored]) or {}


def require_continues(store: DocumentStore, old: TreeHead, new: TreeHead, where: str) -> None:
    """Raise Corrupt if the log of now is not an older one with more entries."""
    if old.size > new.size:
        what = f"has {new.size:,} entries, and {old.size:,} were anchored at {where}"
    elif merkle.root_of(_frontier_at(store, old.size)) != old.root:
        what = f"has other entries than those anchored at {where} with size {old.size:,}"
    else:
        return
    raise Corrupt(
        f"the audit log was cut or changed: it {what}",
        remedy="Nothing was anchored. Run `ninelives audit verify --anchor` and keep the store as it is",
    )


def _newest(target: Objects, log: str) -> Iterator[Note]:
    for name in reversed(target.names(f"{_FOLDER}{log}/")):
        found = target.read(name)
        if found is not None:
            yield read_note(found.content, f"{name} at {target.url}")


def _put(target: Objects, name: str, content: bytes, head: TreeHead) -> None:
    try:
        target.create(name, content)
    except Exception:
        # Another process may have anchored the same at this moment, under another key perhaps.
        found = target.read(name)
        if found is None or read_note(found.content, name).head != head:
            raise


def _note(store: DocumentStore, url: str, head: TreeHead) -> None:
    while True:
        found = documents.find(store, ANCHORS)
        known = documents.decoded(found, dict[str, LastAnchored]) or {}
        after = {**known, url: LastAnchored(head.size, store.read_clock())}
        try:
            version = found.version if found is not None else 0
            store.write_document(ANCHORS, msgspec.json.encode(after), version=version)
        except StaleDocument:
            continue
        return


def _frontier_at(store: DocumentStore, size: int) -> list[bytes]:
    """Return the frontier of the log when it had that many entries."""
    if size == 0:
        return []
    last = tiles.last_tile(store)
    low, high = 0, last.number
    while low < high:  # the first tile that reaches this size
        middle = (low + high) // 2
        low, high = (low, middle) if _tile(store, middle).tile.size >= size else (middle + 1, high)
    frontier = _tile(store, low - 1).tile.hashes if low else []
    tile = _tile(store, low).tile
    for number in range(tile.first, size):
        leaf = merkle.leaf_hash(bytes(tile.entries[number - tile.first]))
        frontier = merkle.grown(frontier, number, leaf)
    return frontier


def _tile(store: DocumentStore, number: int) -> StoredTile:
    for found in tiles.tiles_from(store, number):
        if found.number == number:
            return found
        break
    raise Corrupt(
        f"tile {number} of the audit log is missing", remedy="`ninelives audit verify` shows what else is"
    )
