"""What people are shown of a run has no secrets, also where the store, which encrypts, has them."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from ninelives.core.model.inbox import Item, Signal
from ninelives.core.model.run import Journal, Record
from ninelives.core.secret import masked_json


def masked_records(records: Iterable[Record]) -> tuple[Record, ...]:
    """Return records with masks in place of secrets."""
    return tuple(
        one if body is one.body else replace(one, body=body)
        for one in records
        for body in (masked_json(one.body),)
    )


def masked_item(item: Item) -> Item:
    """Return an inbox item with masks in place of secrets."""
    body, answer = masked_json(item.body), masked_json(item.answer)
    return item if body is item.body and answer is item.answer else replace(item, body=body, answer=answer)


def masked_signal(signal: Signal) -> Signal:
    """Return a signal with masks in place of secrets."""
    body = masked_json(signal.body)
    return signal if body is signal.body else replace(signal, body=body)


def masked_journal(journal: Journal) -> Journal:
    """Return a journal with masks in place of secrets."""
    return replace(
        journal,
        records=masked_records(journal.records),
        signals=tuple(map(masked_signal, journal.signals)),
        items=tuple(map(masked_item, journal.items)),
    )
