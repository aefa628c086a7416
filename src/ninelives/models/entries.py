"""Cached answers as documents, one for each: `cache/STEP/answers/DIGEST`.

Two workers that keep an answer to one question at the same time: the first one stays, until it expires. What
is missing, damaged or expired is a miss. If we die in a write, the store has all of it or nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol

import msgspec
from msgspec import Struct

from ninelives.core.errors import KeyMissing, NotSerializable, StaleDocument
from ninelives.core.model.counter import Counter
from ninelives.core.model.document import Document
from ninelives.core.model_calls import cached_answer
from ninelives.core.model_calls.cached_answer import CachedAnswer, CacheQuestion
from ninelives.stores.encrypted.marker import stored_in
from ninelives.views.documents import ReadsDocuments, find

_NO_SECRET = b""
_PAGE = 200


class CacheStore(ReadsDocuments, Protocol):
    """What a cache needs of a store: all have it."""

    def now_ms(self) -> int: ...

    def write_document(
        self, name: str, body: bytes | None, *, version: int, counts: Sequence[Counter] = ()
    ) -> Document | None: ...


class Kept(Struct, frozen=True):
    """A document of a cache: its answer, or None if it cannot be used; its name and version.

    `is_locked`: it is encrypted with a key that this process does not have.
    """

    name: str
    version: int
    answer: CachedAnswer | None
    bytes: int = 0
    is_locked: bool = False


def secret_of(store: Any) -> bytes:
    """Return what makes names of answers say nothing to others; only an encrypted store has it."""
    given = getattr(store, "name_secret", None)
    return given() if given is not None else _NO_SECRET


def lookup(store: CacheStore, step: str, question: CacheQuestion) -> Kept:
    """Return what is kept under the name of a question. Raises StoreError."""
    name = cached_answer.name_of(step, question.answer)
    found = find(store, name)
    if found is None:
        return Kept(name, 0, None)
    answer = cached_answer.read(found.body)
    is_here = answer is not None and cached_answer.fits(answer, step, question)
    return Kept(name, found.version, answer if is_here else None)


def keep(store: CacheStore, step: str, question: CacheQuestion, answer: CachedAnswer, now_ms: int) -> bool:
    """Keep an answer, unless one is there that has not expired, or it is too large; return whether it was.

    Raises StoreError.
    """
    there = lookup(store, step, question)
    is_over = there.answer is None or cached_answer.is_over(there.answer, answer.ttl_ms, now_ms)
    if not (is_over or question.replaces):
        return False
    body = msgspec.json.encode(cached_answer.sealed(answer))
    try:
        store.write_document(there.name, body, version=there.version)
    except (StaleDocument, NotSerializable):
        # Another worker has kept one at this moment; or the value is larger than a document may be.
        return False
    return True


def listing(store: ReadsDocuments, prefix: str = cached_answer.PREFIX) -> Iterator[Document]:
    """Yield all documents of caches, by name, in pages, as they are stored. Raises StoreError."""
    below, after = stored_in(store), ""
    while page := below.read_documents(prefix, after=after, limit=_PAGE):
        yield from page
        after = page[-1].name


def answers(store: Any, step: str | None = None) -> Iterator[Kept]:
    """Yield all answers that are kept, of all steps or of one; those that cannot be used without content."""
    prefix = cached_answer.prefix_of(step) if step is not None else cached_answer.PREFIX
    for found in listing(store, prefix):
        if cached_answer.ANSWERS not in found.name:
            continue
        try:
            body = opened(store, found)
        except KeyMissing:
            yield Kept(found.name, found.version, None, len(found.body), is_locked=True)
            continue
        answer = cached_answer.read(body)
        if answer is None or step in (None, answer.step):
            yield Kept(found.name, found.version, answer, len(found.body))


def opened(store: Any, found: Document) -> bytes:
    """Return the body of a document as it was written. Raises KeyMissing."""
    cipher = getattr(store, "cipher", None)
    body: bytes = found.body if cipher is None else cipher.open_document(found.name, found.body)
    return body


def clean(store: CacheStore, now_ms: int) -> int:
    """Remove answers that have expired or cannot be used; return how many. Raises StoreError.

    Those that are encrypted with a key that is not here stay. If we die here: the next time removes the rest.
    """
    return sum(
        _remove(store, kept)
        for kept in answers(store)
        if not kept.is_locked
        and (kept.answer is None or cached_answer.is_over(kept.answer, kept.answer.ttl_ms, now_ms))
    )


def clear(
    store: CacheStore, *, step: str | None = None, labels: Mapping[str, str] | None = None, answer: str = ""
) -> int:
    """Remove answers: of one step, with these labels in their scope, or whose name begins so.

    Answers that cannot be used go, too, unless labels are given: they do not say theirs. Raises StoreError.
    """
    wanted = labels or {}
    return sum(
        _remove(store, kept)
        for kept in answers(store, step)
        if kept.name.rpartition("/")[2].startswith(answer)
        and (not wanted or (kept.answer is not None and wanted.items() <= kept.answer.scope.items()))
    )


def _remove(store: CacheStore, kept: Kept) -> int:
    # Only as it was read: an answer that is kept at this moment stays.
    with suppress(StaleDocument):
        store.write_document(kept.name, None, version=kept.version)
        return 1
    return 0
