"""A store's own id: a document that is written on first use, and that no other store has."""

from __future__ import annotations

import secrets

import msgspec

from ninelives.core.errors import StaleDocument
from ninelives.core.model.document import STORE_ID
from ninelives.store import DocumentStore


def store_id(store: DocumentStore) -> str:
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
