"""Cleans and clears all documents of caches: answers, and notes on questions that mean the same.

If we die here, a part is removed; the next time removes the rest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress

import msgspec

from ninelives.core.errors import KeyMissing, StaleDocument
from ninelives.core.model_calls import cached_answer
from ninelives.core.model_calls.cached_answer import NOTES
from ninelives.models import entries
from ninelives.models.entries import CacheStore, opened
from ninelives.models.meaning_notes import MeaningNote
from ninelives.models.meaning_notes import clean as clean_notes


def clean(store: CacheStore, now_ms: int) -> int:
    """Remove what has expired, no longer counts or cannot be used; return how many answers that were.

    What is encrypted with a key that is not here stays. Raises StoreError.
    """
    removed = entries.clean(store, now_ms)
    prefixes = {found.name.rpartition("/")[0] for found in entries.listing(store) if NOTES in found.name}
    for prefix in sorted(prefixes):
        clean_notes(store, prefix, now_ms)
    return removed


def clear(
    store: CacheStore, *, step: str | None = None, labels: Mapping[str, str] | None = None, answer: str = ""
) -> int:
    """Remove answers, as `entries.clear` does; return how many. All of a step, or of all: their notes, too.

    Raises StoreError.
    """
    removed = entries.clear(store, step=step, labels=labels, answer=answer)
    if not labels and not answer:
        prefix = cached_answer.prefix_of(step) if step is not None else cached_answer.PREFIX
        for found in list(entries.listing(store, prefix)):
            if NOTES in found.name.removeprefix(prefix[:-1]):
                with suppress(StaleDocument):
                    store.write_document(found.name, None, version=found.version)
    return removed


def notes(store: CacheStore, step: str | None = None) -> Iterator[tuple[str, MeaningNote]]:
    """Yield the notes that can be read, each with its step. Raises StoreError."""
    prefix = cached_answer.prefix_of(step) if step is not None else cached_answer.PREFIX
    for found in entries.listing(store, prefix):
        if NOTES in found.name:
            with suppress(KeyMissing, msgspec.DecodeError):
                yield (
                    cached_answer.step_in(found.name),
                    msgspec.json.decode(opened(store, found), type=MeaningNote),
                )
