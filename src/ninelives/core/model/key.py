"""Rows of the dedup table, and what a commit may do to them (see `dedup`)."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct


class KeyState(StrEnum):
    """Where a business key is in its life."""

    FREE = "free"
    RESERVED = "reserved"
    SETTLED = "settled"
    IN_DOUBT = "in doubt"
    ORPHANED = "orphaned"  # in doubt, and its owner has ended: the next asker settles it
    PRUNED = "pruned"


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
    window_ms: int | None = None  # so long after it was settled, or pruned, it may be used again
    aliases: tuple[str, ...] = ()  # names that the action had: what they hold under the key is its own


class SettleKey(Struct, frozen=True, tag="settle"):
    """Record the result under the key, for all who ask."""

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
    """A resumable action failed: free its key, which it may be tried again under, by this run or another."""

    key: str


class AdoptKey(Struct, frozen=True, tag="adopt"):
    """Take over a key in doubt whose owner has ended."""

    key: str


class WaitKey(Struct, frozen=True, tag="wait"):
    """Ask for news when the key, held by another run, is settled or freed."""

    key: str


KeyOp = ReserveKey | SettleKey | ReleaseKey | DoubtKey | PassKey | AdoptKey | WaitKey
