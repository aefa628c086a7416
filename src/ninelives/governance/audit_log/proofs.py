"""Proofs that others check without the store: an entry is in the log, or the log continues an older one.

A proof is JSON, with all that a short program needs: the entry as it is kept, its number, the size and root
of the tree, and the hashes between. docs/audit-log.md has such a program.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from msgspec import Struct

from ninelives.core.errors import Corrupt, UsageError
from ninelives.governance.audit_log import entries, merkle, tiles
from ninelives.governance.audit_log.anchoring.heads import TreeHead
from ninelives.governance.audit_log.entries import AuditEntry
from ninelives.governance.audit_log.journal_facts import RUN_ENDED
from ninelives.store import DocumentStore


class InclusionProof(Struct, frozen=True, kw_only=True):
    """That an entry is number `index` of the log of this size and root; hashes in hex, from below."""

    origin: str
    size: int
    root: str
    index: int
    entry: str
    path: list[str]


class ConsistencyProof(Struct, frozen=True, kw_only=True):
    """That the log of this size and root begins with the entries of the older one."""

    origin: str
    size: int
    root: str
    old_size: int
    old_root: str
    path: list[str]


def prove(
    store: DocumentStore, head: TreeHead, name: str, progress: Callable[[int, int], object] | None = None
) -> InclusionProof:
    """Prove that an entry is in the log of a tree head: one named by its number, its id, or an ended run.

    Raises UsageError if there is none; Corrupt if the log is not that of the tree head.
    """
    index, entry = _found(store, name)
    if index >= head.size:
        raise UsageError(
            f"entry {index} is not in the first {head.size:,} entries, which this tree head covers",
            remedy="Anchor the log again: `ninelives audit anchor`",
        )
    leaves = _leaves(store, head, progress)
    path = [one.hex() for one in merkle.inclusion_proof(leaves, index)]
    return InclusionProof(
        origin=head.origin, size=head.size, root=head.root.hex(), index=index, entry=entry.decode(), path=path
    )


def prove_continues(
    store: DocumentStore, old: TreeHead, new: TreeHead, progress: Callable[[int, int], object] | None = None
) -> ConsistencyProof:
    """Prove that the log of a tree head begins with that of an older one. Raises Corrupt if it does not."""
    leaves = _leaves(store, new, progress)
    if old.log != new.log or old.size > new.size or merkle.root_of(_frontier(leaves[: old.size])) != old.root:
        raise Corrupt(
            f"the audit log does not continue the one with {old.size:,} entries",
            remedy="It was cut or changed: `ninelives audit verify` shows where",
        )
    return ConsistencyProof(
        origin=new.origin,
        size=new.size,
        root=new.root.hex(),
        old_size=old.size,
        old_root=old.root.hex(),
        path=[one.hex() for one in merkle.consistency_proof(leaves, old.size)],
    )


def _leaves(
    store: DocumentStore, head: TreeHead, progress: Callable[[int, int], object] | None
) -> list[bytes]:
    leaves: list[bytes] = []
    for stored in tiles.tiles_from(store, 0):
        leaves += [merkle.leaf_hash(bytes(one)) for one in stored.tile.entries]
        if progress is not None:
            progress(min(len(leaves), head.size), head.size)
        if len(leaves) >= head.size:
            break
    del leaves[head.size :]
    if len(leaves) != head.size or merkle.root_of(_frontier(leaves)) != head.root:
        raise Corrupt(
            f"the audit log is not the one with {head.size:,} entries whose root is {head.root.hex()[:16]}",
            remedy="It was cut or changed: `ninelives audit verify` shows where",
        )
    return leaves


def _frontier(leaves: list[bytes]) -> list[bytes]:
    frontier: list[bytes] = []
    for size, leaf in enumerate(leaves):
        frontier = merkle.grown(frontier, size, leaf)
    return frontier


def _found(store: DocumentStore, name: str) -> tuple[int, bytes]:
    """Return an entry and its number; of a run, the entry of its last end."""
    number = int(name) if name.isascii() and name.isdigit() else entries.number_of(store, name)
    quoted, last = msgspec.json.encode(name), None
    for stored in tiles.tiles_from(store, 0):
        for at, raw in enumerate(stored.tile.entries, stored.tile.first):
            entry = bytes(raw)
            if at == number:
                return at, entry
            if number is None and quoted in entry:
                one = msgspec.json.decode(entry, type=AuditEntry)
                if one.id == name:
                    return at, entry
                if one.kind == RUN_ENDED and one.facts.get("run") == name:
                    last = at, entry
    if last is None:
        raise UsageError(
            f"the audit log has no entry {name!r}, and no end of a run of this id",
            remedy="`ninelives audit export` lists all entries",
        )
    return last
