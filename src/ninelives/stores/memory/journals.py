"""Journals in the tables: read and verify them, salvage damaged ones. Needs the store's lock."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import takewhile

from ninelives.core.errors import Corrupt
from ninelives.core.journal import chain, salvage
from ninelives.core.model.inbox import Item, Signal
from ninelives.core.model.run import Journal, News, Record, RunRow, State
from ninelives.core.rules import validation
from ninelives.core.values import blobs
from ninelives.stores.shared.tables import Tables


def find(tables: Tables, run: str) -> RunRow:
    """Return a run's row. Raises UnknownRun."""
    try:
        return tables.rows.runs[run]
    except KeyError:
        raise validation.unknown_run(run) from None


def read(tables: Tables, run: str, since: int | None) -> Journal:
    """Return the durable part of a run, its chain verified."""
    row = find(tables, run)
    first = min(max(row.turn_seq if since is None else since, row.base), row.length)
    stored = tables.journals[run]
    records = tuple(stored[first - row.base :])
    before = row.base_check if first == row.base else stored[first - row.base - 1].check
    chain.verify(run, before, first, records, length=row.length, head=row.head)
    return Journal(row, first, records, *_mail(tables, run))


def news(tables: Tables, seen: Mapping[str, int], now_ms: int) -> Iterator[News]:
    """Return the news of runs whose counter has changed."""
    for run, counter in seen.items():
        row = tables.rows.runs.get(run)
        if row is not None and row.news != counter:
            yield News(row, *_mail(tables, run), now_ms)


def salvage_journal(tables: Tables, run: str, epoch: int, now_ms: int) -> RunRow:
    """Cut a damaged journal back to its last good prefix."""
    row, stored = find(tables, run), tables.journals[run]
    if row.epoch != epoch or row.state is not State.RUNNING:
        raise validation.not_owned(run)
    whole = list(takewhile(lambda record: _is_whole(tables, record), stored))
    found = salvage.salvaged(row, whole, "a checksum fails", now_ms)
    if found is None:
        return row
    after, said = found
    tables.journals[run] = [*stored[: said.seq - row.base], said]
    tables.rows.runs[run] = after
    return after


def _mail(tables: Tables, run: str) -> tuple[tuple[Signal, ...], tuple[Item, ...]]:
    """Return the signals that were not taken, and the inbox items."""
    rows = tables.rows
    return (
        tuple(signal for signal in rows.signals.get(run, ()) if signal.taken is None),
        tuple(rows.items[name] for name in rows.items_of.get(run, ())),
    )


def _is_whole(tables: Tables, record: Record) -> bool:
    """Return whether all blobs of a record can be read."""
    try:
        for name in record.blobs:
            blobs.unpack(name, tables.blobs[name].packed)
    except (KeyError, Corrupt):
        return False
    return True
