"""Rows of the dedup table, and the operations of a commit on them (rules: `core.rules.dedup`)."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct


class KeyState(StrEnum):
    """The state of a business key."""

    FREE = "free"
    RESERVED = "reserved"
    SETTLED = "settled"
    IN_DOUBT = "in doubt"
    ORPHANED = "orphaned"  # in doubt, and its owner has ended: the next run that wants the key settles it
    PRUNED = "pruned"
    MOVED = "moved"  # its owner was moved to another store before it was settled; the body names that store


class Key(Struct, frozen=True, kw_only=True):
    """A row of the dedup table."""

    key: str
    action: str
    fingerprint: bytes
    run: str
    resumable: bool
    state: KeyState
    generation: int
    body: bytes
    blobs: tuple[bytes, ...]
    changed_ms: int


class ReserveKey(Struct, frozen=True, tag="reserve"):
    """Take the key for this run before its action starts."""

    key: str
    action: str
    fingerprint: bytes
    resumable: bool
    window_ms: int | None = None  # the key may be used again this long after it was settled or pruned
    aliases: tuple[str, ...] = ()  # earlier names of the action: keys reserved under them are the action's


class SettleKey(Struct, frozen=True, tag="settle"):
    """Record the result under the key, for every run that uses it."""

    key: str
    body: bytes
    blobs: tuple[bytes, ...] = ()


class ReleaseKey(Struct, frozen=True, tag="release"):
    """Proven not done: free the key for the next generation."""

    key: str


class DoubtKey(Struct, frozen=True, tag="doubt"):
    """The action under the key may or may not have happened."""

    key: str


class PassKey(Struct, frozen=True, tag="pass"):
    """A resumable action failed: free its key, so that this run or another can retry under it."""

    key: str


class AdoptKey(Struct, frozen=True, tag="adopt"):
    """Take over a key in doubt whose owner has ended."""

    key: str


class WaitKey(Struct, frozen=True, tag="wait"):
    """Request news when the key, held by another run, is settled or freed."""

    key: str


KeyOp = ReserveKey | SettleKey | ReleaseKey | DoubtKey | PassKey | AdoptKey | WaitKey
