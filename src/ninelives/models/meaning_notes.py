"""Cached questions and comparisons as documents: `PREFIX/TIME-ID`, each written once and read once.

Each process keeps what it has read in memory, and reads only what is new: names begin with the time of their
writing. Clocks and commits are not quite in order, so the newest minute is listed again each time. What is
damaged or was written by another version is passed over: a question that is missing is asked again, and a
comparison that is missing makes the bound higher. If we die before a note is written: the same.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, Final
from uuid import uuid4

import msgspec
from msgspec import Struct

from ninelives.core.errors import KeyMissing, NotSerializable, StaleDocument, UsageError
from ninelives.core.model.document import Document
from ninelives.core.model_calls.meaning.record import WINDOW, Comparison, Comparisons
from ninelives.models.entries import CacheStore, opened
from ninelives.models.meaning_index import MeaningIndex, packed, unpacked
from ninelives.stores.encrypted.marker import stored_in

OVERLAP_MS: Final = 60_000
_PAGE: Final = 200


class CachedQuestion(Struct, frozen=True, array_like=True):
    """A question that has a cached answer: `entry` names the answer, `vector` is 32-bit floats in base64."""

    entry: str
    text: str
    vector: str
    until_ms: int


class MeaningNote(Struct, frozen=True, omit_defaults=True):
    """The body of a document: one of the two."""

    question: CachedQuestion | None = None
    comparison: Comparison | None = None


class MeaningNotes:
    """All that one cache knows: its questions in `index`, what was compared in `record`.

    For one thread at a time. `prefix` names the cache: a step, a version, a scope, all arguments but the
    question, and what embeds.
    """

    def __init__(self, store: CacheStore, prefix: str, *, numpy: bool | None = None) -> None:
        self._store = store
        self._prefix = prefix.rstrip("/") + "/"
        self.index = MeaningIndex(numpy=numpy)
        self.record = Comparisons()
        self._until: dict[str, int] = {}
        self._seen: set[str] = set()
        self._read_until_ms: int | None = None

    def refresh(self) -> None:
        """Read what others have written since, and drop what has expired. Raises StoreError."""
        now_ms = self._store.now_ms()
        after = self._prefix
        if self._read_until_ms is not None:
            after += f"{max(0, self._read_until_ms - OVERLAP_MS):013d}"
        for found in _listing(self._store, self._prefix, after):
            if found.name not in self._seen:
                self._seen.add(found.name)
                self._take(_read(self._store, found), now_ms)
        self._seen = {name for name in self._seen if name > after}
        # Not beyond our own time: a clock that is ahead must not hide what others write now.
        self._read_until_ms = min(now_ms, max(map(_time_of, self._seen), default=0))
        for entry in [entry for entry, until_ms in self._until.items() if until_ms <= now_ms]:
            self._drop(entry)

    def add_question(self, entry: str, text: str, vector: Sequence[float], ttl_ms: int) -> bool:
        """Keep a question whose answer was cached; return whether it could be.

        Raises StoreError, and UsageError if the vector is none.
        """
        now_ms = self._store.now_ms()
        kept = CachedQuestion(entry, text, b64encode(packed(vector)).decode(), now_ms + ttl_ms)
        return self._write(MeaningNote(question=kept), now_ms)

    def add_comparison(self, comparison: Comparison) -> bool:
        """Keep a comparison; return whether it could be. Raises StoreError."""
        return self._write(MeaningNote(comparison=comparison), self._store.now_ms())

    def _write(self, note: MeaningNote, now_ms: int) -> bool:
        name = f"{self._prefix}{now_ms:013d}-{uuid4().hex[:16]}"
        try:
            self._store.write_document(name, msgspec.json.encode(note), version=0)
        except (NotSerializable, StaleDocument):
            return False
        self._seen.add(name)
        self._take(note, now_ms)
        return True

    def _take(self, note: MeaningNote | None, now_ms: int) -> None:
        if note is None:
            return
        if note.comparison is not None:
            self.record.note(note.comparison)
        one = note.question
        if one is not None and one.until_ms > now_ms:
            with suppress(UsageError, ValueError):
                self.index.add(one.entry, one.text, unpacked(b64decode(one.vector, validate=True)))
                self._until[one.entry] = one.until_ms

    def _drop(self, entry: str) -> None:
        self._until.pop(entry, None)
        self.index.remove(entry)
        self.record.forget(entry)


def clean(store: CacheStore, prefix: str, now_ms: int) -> int:
    """Remove expired questions, comparisons that no longer count, and what cannot be read; return how many.

    `prefix` is that of one cache. Raises StoreError. If we die here: the next time removes the rest.
    """
    over: list[Document] = []
    comparisons: list[Document] = []
    for found in _listing(store, prefix.rstrip("/") + "/", ""):
        try:
            note = _decoded(opened(store, found))
        except KeyMissing:
            continue
        if note is not None and note.comparison is not None:
            comparisons.append(found)
        elif note is None or note.question is None or note.question.until_ms <= now_ms:
            over.append(found)
    over += comparisons[:-WINDOW]
    for found in over:
        with suppress(StaleDocument):
            store.write_document(found.name, None, version=found.version)
    return len(over)


def _listing(store: Any, prefix: str, after: str) -> Iterator[Document]:
    below = stored_in(store)
    while page := below.read_documents(prefix, after=after, limit=_PAGE):
        yield from page
        after = page[-1].name


def _read(store: CacheStore, found: Document) -> MeaningNote | None:
    try:
        return _decoded(opened(store, found))
    except KeyMissing:
        return None


def _decoded(body: bytes) -> MeaningNote | None:
    try:
        return msgspec.json.decode(body, type=MeaningNote)
    except msgspec.DecodeError:
        return None


def _time_of(name: str) -> int:
    time = name.rpartition("/")[2].partition("-")[0]
    return int(time) if time.isdigit() else 0
