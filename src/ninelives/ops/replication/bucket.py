"""A bucket: named objects, and writes on a condition. S3 by obstore, or a directory.

Two conditions carry the fence: `create` writes only what does not exist, and `replace` only what has not
changed since it was read. A write whose answer was lost is resolved by reading: an object that holds exactly
what we wrote is ours, because each of our objects names its writer.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from msgspec import Struct

from ninelives.core.errors import NineLivesError


class BucketError(NineLivesError):
    """The bucket cannot be used: a name that does not exist, or credentials that are refused."""


class BucketUnavailable(BucketError):
    """Nothing is known to be written; the same call may work later."""


class NameTaken(Exception):
    """An object of that name exists, or it has changed since it was read."""


class StoredObject(Struct, frozen=True):
    """An object that was read, and its version, which `replace` compares."""

    content: bytes
    version: str


class Bucket(Protocol):
    """What replication needs of a bucket. Each call raises BucketUnavailable, BucketError."""

    @property
    def url(self) -> str:
        """Name the bucket for people, without secrets."""

    @property
    def location(self) -> str:
        """Name the bucket so that no other has the same name: the server, too."""

    def read(self, name: str) -> StoredObject | None:
        """Return an object, or None."""

    def read_start(self, name: str, size: int) -> bytes | None:
        """Return the first bytes of an object, or None."""

    def create(self, name: str, content: bytes) -> str:
        """Write a new object, and return its version. Raises NameTaken if there is one by then."""

    def replace(self, name: str, content: bytes, version: str) -> str:
        """Replace an object that still has this version, and return the new one. Raises NameTaken."""

    def write(self, name: str, content: bytes) -> None:
        """Write an object, whatever is there."""

    def names(self, prefix: str, after: str = "") -> list[str]:
        """Return the names of all objects under a prefix that come after a name, in order."""

    def remove(self, names: Iterable[str]) -> None:
        """Remove objects; those that do not exist are ignored."""
