"""The policies that ever governed runs of a store, under their digests: records and the audit log name these.

A text is written once and never changed. It is kept compressed in a document, since a policy file may be
larger than one.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

from ninelives.core.errors import StaleDocument, UsageError
from ninelives.governance.policy.judge import FilePolicy
from ninelives.views import documents

if TYPE_CHECKING:
    from ninelives.governance.parts import GovernedStore
    from ninelives.governance.policy.combined import Policies

PREFIX: Final = "policies/"
_MOST_BYTES: Final = 60_000
_MOST_TEXT: Final = 4 * 1024 * 1024


class KeptPolicy(Struct, frozen=True, kw_only=True):
    """A policy's document: `packed` is its text, compressed; `parts` are the digests of joined ones.

    With `is_file`, the text is a policy file; else the source of a function, or another language.
    """

    name: str
    first_ms: int
    packed: str
    parts: tuple[str, ...] = ()
    is_file: bool = False

    @property
    def text(self) -> str:
        """What the policy says."""
        return zlib.decompressobj().decompress(base64.b85decode(self.packed), _MOST_TEXT).decode()


def keep(store: GovernedStore, policies: Policies) -> None:
    """Keep the texts of policies before they govern anything. Raises UsageError for one that is too large."""
    parts = tuple(one.digest for one in policies.members) if len(policies.members) > 1 else ()
    for one in policies.members:
        _keep(store, one.digest, one.name, one.text, is_file=isinstance(one, FilePolicy))
    if parts:
        _keep(store, policies.digest, policies.name, policies.text, parts=parts)


def _keep(
    store: GovernedStore,
    digest: str,
    name: str,
    text: str,
    *,
    parts: tuple[str, ...] = (),
    is_file: bool = False,
) -> None:
    if documents.find(store, f"{PREFIX}{digest}") is not None:
        return
    packed = base64.b85encode(zlib.compress(text.encode(), 9)).decode()
    if len(packed) > _MOST_BYTES:
        raise UsageError(f"the policy {name!r} is too large to be kept", remedy="Split it into several files")
    body = KeptPolicy(name=name, first_ms=store.now_ms(), packed=packed, parts=parts, is_file=is_file)
    try:
        store.write_document(f"{PREFIX}{digest}", msgspec.json.encode(body), version=0)
    except StaleDocument:
        return  # another process has written the same text meanwhile


def kept(store: documents.ReadsDocuments) -> Iterator[tuple[str, KeptPolicy]]:
    """Yield all policies that were kept, by digest."""
    for one in documents.listing(store, PREFIX):
        found = documents.decoded(one, KeptPolicy)
        if found is not None:
            yield one.name.removeprefix(PREFIX), found


def find(store: documents.ReadsDocuments, digest: str) -> tuple[str, KeptPolicy]:
    """Return a kept policy by its digest, or the beginning of it. Raises UsageError."""
    known = list(kept(store))
    found = [one for one in known if one[0].startswith(digest)]
    if len(found) != 1:
        what = "several policies begin so" if found else "no such policy governed runs of this store"
        listed = ", ".join(one[:12] for one, _ in known[:10]) or "none"
        raise UsageError(f"{digest!r}: {what}", remedy=f"There are: {listed}")
    return found[0]
