"""Load the bodies that were too large for a record from their blobs."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from ninelives.core.model.run import Journal, Record
from ninelives.store import Store


def whole(store: Store, records: Sequence[Record]) -> tuple[Record, ...]:
    """Return the records with all bodies loaded. Raises Corrupt."""
    away = {record.blobs[0] for record in records if _is_away(record)}
    if not away:
        return records if isinstance(records, tuple) else tuple(records)
    contents = store.get_blobs(away)
    return tuple(
        replace(record, body=contents[record.blobs[0]]) if _is_away(record) else record for record in records
    )


def is_whole(records: Sequence[Record]) -> bool:
    """Return whether no body has to be loaded."""
    return not any(_is_away(record) for record in records)


def load(store: Store, run: str) -> Journal:
    """Load the journal of a run's current turn, with all bodies. Raises UnknownRun; Corrupt."""
    return restored(store, store.load_journal(run))


def restored(store: Store, journal: Journal) -> Journal:
    """Return a journal with all bodies loaded. Raises Corrupt."""
    records = whole(store, journal.records)
    return journal if records is journal.records else replace(journal, records=records)


def _is_away(record: Record) -> bool:
    return not record.body and bool(record.blobs)
