"""What the engine knows of a store that encrypts: records are sealed once they have their numbers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from ninelives.core.model.commit import Commit
from ninelives.core.model.run import INLINE_BYTES
from ninelives.core.secret import KEPT


class RecordCipher(Protocol):
    """Seals what is written to one store (`stores.encrypted`)."""

    inline_bytes: int
    """The largest body that, sealed, still fits into a record."""

    def commit(self, commit: Commit, /) -> Commit:
        """Return a commit with everything of users sealed, and its records chained again."""

    def blob(self, content: bytes, /) -> bytes:
        """Return a large value, sealed."""


def cipher_of(store: Any) -> RecordCipher | None:
    """Return what seals the records of a store; None for one that does not encrypt."""
    found: RecordCipher | None = getattr(store, "cipher", None)
    return found


def inline_bytes(store: Any) -> int:
    """Return how large a body may be that a record of this store keeps itself."""
    cipher = cipher_of(store)
    return INLINE_BYTES if cipher is None else cipher.inline_bytes


def allow_secrets(store: Any) -> None:
    """Let what is encoded in this context have secrets, if the store encrypts them."""
    KEPT.set(cipher_of(store) is not None)


@contextmanager
def writing_to(store: Any) -> Iterator[None]:
    """Encode for a store: secrets may be in values only if it encrypts them."""
    token = KEPT.set(cipher_of(store) is not None)
    try:
        yield
    finally:
        KEPT.reset(token)
