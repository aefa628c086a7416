"""Read the whole audit log, and find what in it, or beside it, is not what was written.

Nothing is trusted that can be computed: every hash is made again from the entries. Reading is in a sequence
in which processes that add entries meanwhile cause no finding: what says that something is in the log is
read before the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, TypeVar

import msgspec
from msgspec import Raw, Struct

from ninelives.core.errors import BadFile, Corrupt
from ninelives.core.model.document import Document
from ninelives.governance.audit_log import entries, follower, merkle, tiles
from ninelives.governance.audit_log.anchoring import heads
from ninelives.governance.audit_log.anchoring.heads import Note, TreeHead
from ninelives.governance.audit_log.entries import AuditEntry
from ninelives.governance.audit_log.follower import Followed
from ninelives.governance.audit_log.journal_facts import RUN_ENDED
from ninelives.governance.audit_log.pruning import PRUNED, Cutoff
from ninelives.governance.audit_log.tiles import Tile
from ninelives.store import DocumentStore
from ninelives.views.documents import listing

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

T = TypeVar("T")
POLICY = "policy loaded"
_PAGE = 200
Report = Callable[[str, str], object]
"""Notes a finding: where, and what."""


class _Ended(Struct, frozen=True):
    run: str
    agent: str
    state: str
    length: int
    head: str
    since: int
    sha256: str
    created_ms: int
    fault: str = ""


class LoggedEnd(Struct, frozen=True):
    """What the log says of a run's last end: the entry's number and time, and its facts."""

    number: int
    at_ms: int
    facts: _Ended


class LoggedRecord(Struct, frozen=True):
    """The last record of a run that the log names by itself."""

    run: str
    record: int
    check: str


class DocumentClaims(Struct, frozen=True):
    """What documents say is in the log; read before the log."""

    size: int
    opened: frozenset[str]
    numbers: dict[str, int]
    followed: dict[str, Followed]
    state: follower.FollowerState
    batch: frozenset[str]


class Walked(Struct):
    """What is in the log, as far as the checks of runs need it."""

    size: int = 0
    frontier: list[bytes] = []
    hashes: dict[bytes, bytes] = {}
    ends: dict[str, LoggedEnd] = {}
    records: dict[str, LoggedRecord] = {}
    numbers: dict[str, int] = {}
    cutoffs: list[tuple[int, Cutoff]] = []
    policies: dict[str, int] = {}
    switched: tuple[bool, str, int] = (False, "", 0)
    roots: dict[int, bytes] = {}


def id_key(id: str) -> bytes:
    """Return the short digest under which an id is remembered while the log is read."""
    return sha256(id.encode("utf-8", "surrogatepass")).digest()[:16]


def read_beside(store: DocumentStore, report: Report) -> DocumentClaims:
    """Read what documents say is in the log: its size and open entries first, then the numbers."""
    size = _tried(lambda: tiles.last_tile(store).tile.size, 0, "tiles", report)
    nothing: list[Document] = []
    opened = _tried(lambda: list(listing(store, entries.OPEN, page=_PAGE)), nothing, entries.OPEN, report)
    numbers = dict(_bodies(listing(store, entries.NUMBERS, page=_PAGE), entries.NUMBERS, int, report))
    state = _tried(lambda: follower.read_state(store)[0], follower.FollowerState(), "follower", report)
    followed = dict(_bodies(listing(store, follower.RUN, page=_PAGE), follower.RUN, Followed, report))
    batch = frozenset(_id_of(one) for one in state.batch.entries) if state.batch is not None else frozenset()
    names = frozenset(one.name.removeprefix(entries.OPEN) for one in opened)
    return DocumentClaims(size, names, numbers, followed, state, batch)


def walk(
    store: DocumentStore, sizes: Sequence[int], report: Report, progress: Callable[[int], object]
) -> Walked:
    """Read all tiles, in order, and compute the tree; keep its roots at these sizes."""
    found = Walked()
    wanted = set(sizes)
    if 0 in wanted:
        found.roots[0] = merkle.EMPTY
    number, is_full = 0, True
    try:
        for document in listing(store, tiles.TILE, page=_PAGE):
            where = document.name
            tile = _decoded(document, Tile, report)
            if where != tiles.tile_name(number):
                report(where, f"it should be tile {number}: tiles are missing, or this one was put there")
            if not is_full:
                report(where, "the tile before it is not full")
            number += 1
            if tile is None:
                continue
            if tile.first != found.size:
                report(where, f"it begins with entry {tile.first}, and {found.size} entries come before it")
            if not tile.entries:
                report(where, "it has no entries")
            for entry in tile.entries:
                _take(found, bytes(entry), where, report)
                if found.size in wanted:
                    found.roots[found.size] = merkle.root_of(found.frontier)
            if tile.frontier != [one.hex() for one in found.frontier]:
                report(where, "its hashes are not those of the entries up to its end")
            is_full = tile.is_full
            progress(found.size)
    except Corrupt as error:
        report("tiles", str(error))
    return found


def check_beside(beside: DocumentClaims, walked: Walked, report: Report) -> None:
    """Compare what documents say is in the log with what is in it."""
    for digest, number in walked.numbers.items():
        known = beside.numbers.get(digest)
        if known is not None and known != number:
            report(f"entry {number}", f"a document says that it is entry {known}")
        elif known is None and number < beside.size and digest not in beside.opened:
            report(f"entry {number}", "the document that says that it was added is gone")
    for digest, number in beside.numbers.items():
        if digest not in walked.numbers:
            report(entries.NUMBERS + digest, f"it says that entry {number} was added, and it is not there")


def check_state(
    store: DocumentStore, walked: Walked, now_ms: int, beside: DocumentClaims, report: Report
) -> None:
    """Check that the log is on or off as it says itself, and is the log that its first entry names."""
    state = _tried(lambda: tiles.read_state(store)[0], None, tiles.STATE, report)
    is_on, log, switches = walked.switched
    if state is None:
        report(tiles.STATE, "the document that says whether the log is on is gone")
        return
    if switches and log != state.log:
        report(tiles.STATE, f"it names the log {state.log}, and the entries are of the log {log}")
    if state.is_on is not is_on or state.switches != switches:
        word = "on" if is_on else "off"
        report(
            tiles.STATE,
            f"by its entries the log was last switched {word}, and this document says otherwise; "
            f"if switching it was cut off, `ninelives audit {word}` finishes that",
        )
    if beside.state.through_ms > now_ms + follower.LATE_MS:
        report(follower.FOLLOWER, "it says that all runs are in the log that will have ended at a later time")


def check_heads(
    anchored: Sequence[tuple[str, bytes]],
    walked: Walked,
    log: str,
    key: Ed25519PublicKey | None,
    report: Report,
) -> list[TreeHead]:
    """Compare anchored tree heads with the tree; with a key, each must have its signature."""
    sound = []
    for where, content in anchored:
        note = _note(where, content, report)
        if note is None:
            continue
        if key is not None and not heads.is_signed(note, key):
            report(where, "it has no valid signature of this key")
        elif note.head.log != log:
            report(where, f"it is of another log, {note.head.log}; this store's is {log}")
        elif note.head.size > walked.size:
            missing = note.head.size - walked.size
            report(where, f"{note.head.size:,} entries were anchored, and the last {missing:,} are gone")
        elif walked.roots.get(note.head.size) != note.head.root:
            report(where, f"the first {note.head.size:,} entries are not those that were anchored")
        else:
            sound.append(note.head)
    return sound


def anchored_sizes(anchored: Sequence[tuple[str, bytes]]) -> list[int]:
    """Return the sizes at which roots are needed; what cannot be read is reported by `check_heads`."""
    found = []
    for where, content in anchored:
        try:
            found.append(heads.read_note(content, where).head.size)
        except BadFile:
            continue
    return found


def _take(found: Walked, entry: bytes, where: str, report: Report) -> None:
    """Add an entry to the tree, and note what the checks of runs need of it."""
    number, leaf = found.size, merkle.leaf_hash(entry)
    found.frontier = merkle.grown(found.frontier, number, leaf)
    found.size += 1
    try:
        one = msgspec.json.decode(entry, type=AuditEntry)
        if msgspec.json.encode(one, order="sorted") != entry:
            report(where, f"entry {number} is not written as entries are")
    except msgspec.DecodeError as error:
        report(where, f"entry {number} is no entry: {error}")
        return
    key = id_key(one.id)
    if key in found.hashes:
        report(where, f"entry {number} has the id {one.id!r} of an entry before it")
        return
    is_of_run = one.id.startswith("run/")
    found.hashes[key] = leaf
    if not is_of_run:
        found.numbers[entries.digest_of(one.id)] = number
    try:
        _note_facts(found, one, number, is_of_run=is_of_run)
    except msgspec.ValidationError as error:
        report(where, f"entry {number} ({one.kind}) lacks what it should say: {error}")


def _note_facts(found: Walked, one: AuditEntry, number: int, *, is_of_run: bool) -> None:
    if is_of_run and one.kind == RUN_ENDED:
        facts = msgspec.convert(one.facts, _Ended)
        found.ends[facts.run] = LoggedEnd(number, one.at_ms, facts)
    elif is_of_run:
        record = msgspec.convert(one.facts, LoggedRecord)
        found.records[record.run] = record
    elif one.kind == PRUNED:
        found.cutoffs.append((number, msgspec.convert(one.facts, Cutoff)))
    elif one.kind == POLICY:
        found.policies.setdefault(str(one.facts.get("digest")), one.at_ms)
    elif one.kind in ("audit on", "audit off"):
        switches = found.switched[2] + 1
        found.switched = one.kind == "audit on", str(one.facts.get("log")), switches


def _bodies(found: Iterator[Document], prefix: str, kind: type[T], report: Report) -> Iterator[tuple[str, T]]:
    try:
        for document in found:
            body = _decoded(document, kind, report)
            if body is not None:
                yield document.name.removeprefix(prefix), body
    except Corrupt as error:
        report(prefix, str(error))


def _decoded(document: Document, kind: type[T], report: Report) -> T | None:
    try:
        return msgspec.json.decode(document.body, type=kind)
    except msgspec.DecodeError as error:
        report(document.name, f"it is not what the audit log writes: {error}")
        return None


def _tried(read: Callable[[], T], otherwise: T, where: str, report: Report) -> T:
    try:
        return read()
    except Corrupt as error:
        report(where, str(error))
        return otherwise


def _note(where: str, content: bytes, report: Report) -> Note | None:
    try:
        return heads.read_note(content, where)
    except BadFile as error:
        report(where, str(error))
        return None


def _id_of(entry: Raw) -> str:
    return msgspec.json.decode(entry, type=AuditEntry).id
