"""A store's own id: a document that is written on first use, and that no other store has."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Protocol

import msgspec

from ninelives.core.errors import StaleDocument
from ninelives.core.model.counter import Counter
from ninelives.core.model.document import STORE_ID, Document


class IdentifiedStore(Protocol):
    """What is needed of a store; `store.Maintenance` has it."""

    def read_documents(self, prefix: str = "", *, after: str = "", limit: int = 1000) -> list[Document]: ...

    def write_document(
        self, name: str, body: bytes | None, *, version: int, counts: Sequence[Counter] = ()
    ) -> Document | None: ...


def store_id(store: IdentifiedStore) -> str:
    """Return the store's id; give it one if it has none. Two processes that give one at once agree."""
    while True:
        for document in store.read_documents(STORE_ID, limit=1):
            if document.name == STORE_ID:
                return msgspec.json.decode(document.body, type=str)
        try:
            # CRASH: the store has its id, or the next call gives it one; nothing was named by it yet.
            store.write_document(STORE_ID, msgspec.json.encode(secrets.token_hex(16)), version=0)
        except StaleDocument:
            continue
