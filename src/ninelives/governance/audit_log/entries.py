"""Add entries to the audit log, each once, whichever process dies and however many write.

An entry is fixed in a document before it is in the log: `auditlog/open/DIGEST`, under the digest of its id,
says what the entry is and which tile was the last one then. Every process that adds it searches the log from
that tile on first, and each write of a tile is a compare-and-set: so an entry is never in the log twice.
`auditlog/id/DIGEST` is its number, once it is there; then the first document is removed.

If we die here: an open entry, which the next `append` with this id or the next follower (`finish_open`) adds
as it was fixed; or an entry that is in the log and still called open, which the same finds out.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from contextlib import suppress
from hashlib import sha256

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from ninelives.core.errors import NotSerializable, StaleDocument, UsageError
from ninelives.core.model.document import Document
from ninelives.governance.audit_log import tiles
from ninelives.governance.audit_log.tiles import PREFIX, LogState, StoredTile, Tile
from ninelives.store import DocumentStore
from ninelives.views import documents

NUMBERS, OPEN = f"{PREFIX}id/", f"{PREFIX}open/"


class AuditEntry(Struct, frozen=True, kw_only=True):
    """An entry of the log. `id` is its own, `facts` depend on `kind`."""

    at_ms: int
    facts: dict[str, object]
    id: str
    kind: str


class OpenEntry(Struct, frozen=True, kw_only=True):
    """The body of `auditlog/open/DIGEST`: an entry to be added, and the last tile when it was fixed."""

    tile: int
    entry: Raw


class _Id(Struct, frozen=True):
    id: str


def is_on(store: DocumentStore) -> bool:
    """Return whether the store has an audit log that is switched on."""
    state, _ = tiles.read_state(store)
    return state is not None and state.is_on


def append(store: DocumentStore, kind: str, *, id: str, **facts: object) -> int | None:
    """Add an entry and return its number; None if the audit log is not switched on.

    An entry with this id that is there already stays as it is. Facts are JSON, sorted by name. Raises
    NotSerializable; Corrupt; StoreUnavailable. Not for an event loop: it calls the store.
    """
    return _append(store, kind, id, facts) if is_on(store) else None


def switch(store: DocumentStore, *, on: bool, **facts: object) -> bool:
    """Switch the audit log on or off, and log that; return whether that changed anything."""
    while True:
        state, version = tiles.read_state(store)
        if state is None:
            if not on:
                return False
            _put_state(store, LogState(log=secrets.token_hex(16)), 0)
            continue
        if state.is_on is on:
            return False
        word = "on" if on else "off"
        _append(store, f"audit {word}", f"switch/{state.switches}", {**facts, "log": state.log})
        # CRASH: the log says that it is on, or off, and is not yet: switching it again finishes that.
        if _put_state(store, replace(state, is_on=on, switches=state.switches + 1), version):
            return True


def finish_open(store: DocumentStore) -> int:
    """Add the entries that processes fixed before they died; return how many were open."""
    found = store.read_documents(OPEN)
    for document in found:
        _finish(store, document)
    return len(found)


def number_of(store: DocumentStore, id: str) -> int | None:
    """Return the number of an entry that was added by `append`; None if there is none. Raises Corrupt."""
    return tiles.strictly(documents.find(store, NUMBERS + digest_of(id)), int)


def digest_of(id: str) -> str:
    """Return the digest by which documents name an entry's id."""
    return sha256(id.encode("utf-8", "surrogatepass")).hexdigest()[:40]


def write_entry(at_ms: int, kind: str, id: str, facts: dict[str, object]) -> bytes:
    """Return an entry as it is kept: JSON without spaces, names sorted. Raises NotSerializable."""
    try:
        entry = AuditEntry(at_ms=at_ms, facts=facts, id=id, kind=kind)
        written = msgspec.json.encode(entry, order="sorted")
    except (TypeError, ValueError, msgspec.MsgspecError) as error:
        raise NotSerializable(f"the entry {id!r} of the audit log is not JSON: {error}") from error
    if len(written) > tiles.ENTRY_BYTES:
        raise NotSerializable(
            f"the audit log's entry {id!r} has {len(written):,} bytes; {tiles.ENTRY_BYTES:,} is the limit",
            remedy="Log a digest of what is long",
        )
    return written


def add_all(store: DocumentStore, entries: Sequence[bytes], since: int) -> list[int]:
    """Add those entries that are not in the log yet, and return the number of each.

    They were fixed in a document, with their ids, when tile `since` was the last: none is in an earlier one.
    """
    ids = [msgspec.json.decode(entry, type=_Id).id for entry in entries]
    while True:
        last = tiles.last_tile(store)
        found = _found(store, set(ids), since, last)
        if len(found) == len(set(ids)):
            return [found[one] for one in ids]
        number, version, tile = last.number, last.version, last.tile
        if tile.is_full:
            number, version = number + 1, 0
            tile = Tile(first=tile.size, entries=[], frontier=tile.frontier)
        for one, entry in zip(ids, entries, strict=True):
            if one not in found and not tile.is_full:
                found[one] = tile.size
                tile = tile.with_entry(entry)
        # If another process was quicker, it may have added some of these: search again, in any case.
        tiles.write_tile(store, number, version, tile)


def log_size(store: DocumentStore) -> int:
    """Return how many entries the log has."""
    return tiles.last_tile(store).tile.size


def _found(store: DocumentStore, ids: set[str], since: int, last: StoredTile) -> dict[str, int]:
    """Return the numbers of entries with these ids, from a tile on up to the last one, as it was read."""
    found: dict[str, int] = {}
    for stored in tiles.tiles_from(store, since):
        one = last if stored.number == last.number else stored
        for number, entry in enumerate(one.tile.entries, one.tile.first):
            named = msgspec.json.decode(entry, type=_Id).id
            if named in ids:
                found.setdefault(named, number)
        if one is last:
            break
    return found


def _append(store: DocumentStore, kind: str, id: str, facts: dict[str, object]) -> int:
    if not kind or not id:
        raise UsageError("an entry of the audit log needs a kind and an id")
    digest = digest_of(id)
    while True:
        known = number_of(store, id)
        if known is not None:
            return known
        opened = documents.find(store, OPEN + digest)
        if opened is None:
            entry = OpenEntry(
                tile=tiles.last_tile(store).number,
                entry=Raw(write_entry(store.read_clock(), kind, id, facts)),
            )
            with suppress(StaleDocument):
                opened = store.write_document(OPEN + digest, msgspec.json.encode(entry), version=0)
        # CRASH: an open entry: the next call with this id, or a follower, adds it.
        if opened is not None:
            return _finish(store, opened)


def _finish(store: DocumentStore, opened: Document) -> int:
    """Add an open entry, unless it is there; then note its number, and remove what called it open."""
    name = NUMBERS + opened.name.removeprefix(OPEN)
    at = tiles.strictly(documents.find(store, name), int)
    if at is None:
        one = tiles.body_of(opened, OpenEntry)
        (at,) = add_all(store, [bytes(one.entry)], one.tile)
        # CRASH: it is in the log, and still called open: it is searched for before it is added.
        with suppress(StaleDocument):  # another process has noted the same
            store.write_document(name, b"%d" % at, version=0)
    with suppress(StaleDocument):
        # CRASH: its number is noted, and it is still called open: whatever finds that removes it.
        store.write_document(opened.name, None, version=opened.version)
    return at


def _put_state(store: DocumentStore, state: LogState, version: int) -> bool:
    try:
        store.write_document(tiles.STATE, msgspec.json.encode(state), version=version)
    except StaleDocument:
        return False
    return True
