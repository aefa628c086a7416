"""Read documents: one, by its exact name, as the struct that its writer keeps there; or all of a prefix."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol, TypeVar

import msgspec

from ninelives.core.model.document import Document

T = TypeVar("T")


class ReadsDocuments(Protocol):
    """What is needed of a store."""

    def read_documents(self, prefix: str = "", *, after: str = "", limit: int = 1000) -> list[Document]: ...


def listing(
    store: ReadsDocuments, prefix: str = "", *, after: str = "", page: int = 1000
) -> Iterator[Document]:
    """Yield all documents whose names begin with a prefix and come after a name, by name; read in pages."""
    while found := store.read_documents(prefix, after=after, limit=page):
        yield from found
        after = found[-1].name


def find(store: ReadsDocuments, name: str) -> Document | None:
    """Return a document; None if there is none of this name."""
    found = store.read_documents(name, limit=1)  # by prefix: it may be another one
    return found[0] if found and found[0].name == name else None


def decoded(found: Document | None, kind: type[T]) -> T | None:
    """Return a document's body; None if there is none, or if another version has written it: begin again."""
    try:
        return msgspec.json.decode(found.body, type=kind) if found is not None else None
    except msgspec.DecodeError:
        return None


def read(store: ReadsDocuments, name: str, kind: type[T]) -> tuple[T | None, int]:
    """Return a document's body as `decoded` does, and the version to write it with; 0: there is none."""
    found = find(store, name)
    return decoded(found, kind), found.version if found is not None else 0
