"""The Merkle tree of RFC 6962 over SHA-256: roots, and proofs that others can check with a few lines of code.

A leaf's hash is SHA-256(0x00, entry), a node's SHA-256(0x01, left, right), so no node can be taken for an
entry. A tree of n leaves is split at the largest power of two below n. A `frontier` are the roots of its
whole subtrees, the largest first: all that is needed to add leaves and to know the root.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

EMPTY = sha256().digest()
"""The root of the tree without leaves."""


def leaf_hash(entry: bytes) -> bytes:
    """Return the hash of an entry."""
    return sha256(b"\0" + entry).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """Return the hash of two subtrees."""
    return sha256(b"\1" + left + right).digest()


def grown(frontier: Sequence[bytes], size: int, leaf: bytes) -> list[bytes]:
    """Return the frontier of a tree of `size` leaves after one more."""
    after = list(frontier)
    while size & 1:
        leaf = node_hash(after.pop(), leaf)
        size >>= 1
    return [*after, leaf]


def is_frontier(frontier: Sequence[bytes], size: int) -> bool:
    """Return whether a frontier has as many subtrees as a tree of that size, each a whole hash."""
    return len(frontier) == size.bit_count() and all(len(one) == len(EMPTY) for one in frontier)


def root_of(frontier: Sequence[bytes]) -> bytes:
    """Return the root of the tree with that frontier."""
    if not frontier:
        return EMPTY
    root = frontier[-1]
    for left in reversed(frontier[:-1]):
        root = node_hash(left, root)
    return root


def inclusion_proof(leaves: Sequence[bytes], index: int) -> list[bytes]:
    """Return the hashes that lead from leaf `index` to the root: from below, one for each level."""
    if len(leaves) <= 1:
        return []
    split = _split(len(leaves))
    if index < split:
        return [*inclusion_proof(leaves[:split], index), _root(leaves[split:])]
    return [*inclusion_proof(leaves[split:], index - split), _root(leaves[:split])]


def consistency_proof(leaves: Sequence[bytes], old_size: int) -> list[bytes]:
    """Return the hashes that show that the first `old_size` leaves are those of an older tree."""
    return _consistency(leaves, old_size, is_whole=True) if 0 < old_size < len(leaves) else []


def _consistency(leaves: Sequence[bytes], old_size: int, *, is_whole: bool) -> list[bytes]:
    if old_size == len(leaves):
        return [] if is_whole else [_root(leaves)]
    split = _split(len(leaves))
    if old_size <= split:
        return [*_consistency(leaves[:split], old_size, is_whole=is_whole), _root(leaves[split:])]
    return [*_consistency(leaves[split:], old_size - split, is_whole=False), _root(leaves[:split])]


def _root(leaves: Sequence[bytes]) -> bytes:
    frontier: list[bytes] = []
    for size, leaf in enumerate(leaves):
        frontier = grown(frontier, size, leaf)
    return root_of(frontier)


def _split(size: int) -> int:
    return 1 << ((size - 1).bit_length() - 1)
