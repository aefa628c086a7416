"""Journals in memory: read and verify them. Needs the store's lock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ninelives.core.errors import Corrupt, NineLivesError, UnknownRun
from ninelives.core.journal import chain
from ninelives.core.model.capsule import Capsule
from ninelives.core.model.inbox import Item, Signal
from ninelives.core.model.run import Journal, News
from ninelives.core.rules import capsules, validation
from ninelives.stores.memory.tables import Contents, Transaction


def read_journal(tx: Transaction, run_id: str, since: int | None) -> Journal:
    """Return the durable part of a run, its chain verified."""
    row = tx.contents.rows.runs.get(run_id)
    if row is None:
        raise validation.unknown_run(run_id)
    first = min(max(row.turn_seq if since is None else since, row.base), row.length)
    stored = tx.contents.journals[run_id]
    records = tuple(stored[first - row.base :])
    before = row.base_check if first == row.base else stored[first - row.base - 1].check
    chain.verify(run_id, before, first, records, length=row.length, head=row.head)
    return Journal(row, first, records, *_mail(tx.contents, run_id))


def read_journals(tx: Transaction, names: Sequence[str]) -> list[Journal | NineLivesError]:
    """Return the current turns of many runs, or their errors."""
    journals: list[Journal | NineLivesError] = []
    for name in names:
        try:
            journals.append(read_journal(tx, name, None))
        except (Corrupt, UnknownRun) as error:
            journals.append(error)
    return journals


def read_capsule(tx: Transaction, run_id: str) -> Capsule:
    """Return everything that is stored of a run; see `Maintenance.export_run`."""
    journal, rows = read_journal(tx, run_id, 0), tx.contents.rows
    queue = rows.signals.get(run_id, ())
    keys = (rows.keys[name] for name in rows.holds.get(run_id, ()) if name in rows.keys)
    return capsules.capsule_of(journal, queue, len(queue), keys)


def read_news(tx: Transaction, seen: Mapping[str, int]) -> list[News]:
    """Return the news of runs whose counter has changed."""
    known, now_ms = tx.contents.rows.runs, tx.now_ms
    found = (known[run] for run, counter in seen.items() if run in known and known[run].news != counter)
    return [News(row, *_mail(tx.contents, row.id), now_ms) for row in found]


def _mail(contents: Contents, run: str) -> tuple[tuple[Signal, ...], tuple[Item, ...]]:
    """Return the signals that were not taken, and the inbox items."""
    rows = contents.rows
    return (
        tuple(signal for signal in rows.signals.get(run, ()) if signal.taken is None),
        tuple(rows.items[name] for name in rows.items_of.get(run, ())),
    )
