"""The document that says that a store is encrypted: from then on, no process without keys writes to it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from typing import Final, TypeVar

import msgspec
from msgspec import Struct

from ninelives.core.errors import Corrupt, StaleDocument
from ninelives.core.model.capsule import Capsule
from ninelives.core.model.document import ENCRYPTION
from ninelives.store import Maintenance

T = TypeVar("T")
_TOKEN: Final = re.compile(rb'"\$":"sealed","of":\[[^\]]*\],"v":"([0-9a-f]+)\.')


def stored_in(store: T) -> T:
    """Return the store as it keeps its bodies: copies and digests of them need no key, and open nothing."""
    kept: T = getattr(store, "below", store)
    return kept


class Marker(Struct, frozen=True):
    """The version of the sealed form, and the id of the key that was the newest when it was last written."""

    version: int
    key: str


_DECODE = msgspec.json.Decoder(Marker).decode


def read_marker(store: Maintenance) -> tuple[Marker | None, int]:
    """Return what a store says of its encryption, and the document's version. Raises Corrupt."""
    found = store.read_documents(ENCRYPTION, limit=1)
    if not found:
        return None, 0
    try:
        return _DECODE(found[0].body), found[0].version
    except msgspec.DecodeError as error:
        raise Corrupt(f"the document {ENCRYPTION} cannot be read: {error}") from None


def mark(store: Maintenance, key: str, version: int) -> None:
    """Write that the store is encrypted; another process may do it at the same moment."""
    with suppress(StaleDocument):
        store.write_document(ENCRYPTION, msgspec.json.encode(Marker(1, key)), version=version)


def mark_if_encrypted(store: Maintenance, capsules: Iterable[Capsule]) -> None:
    """Mark a store that is about to get encrypted runs from another one.

    If we die here: a store that is marked and has nothing encrypted; its processes need the keys.
    """
    for capsule in capsules:
        for record in capsule.records:
            found = _TOKEN.search(record.body)
            if found is not None:
                if read_marker(store)[0] is None:
                    mark(store, found[1].decode(), 0)
                return
