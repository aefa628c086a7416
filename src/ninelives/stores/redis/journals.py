"""Reading journals: one from any record on, or the current turns of many, each with one script."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from ninelives.core.errors import Corrupt, NineLivesError, UnknownRun
from ninelives.core.journal import chain
from ninelives.core.model.capsule import Capsule
from ninelives.core.model.inbox import Item
from ninelives.core.model.run import Journal, News
from ninelives.core.rules import capsules, validation
from ninelives.stores.redis import encoding
from ninelives.stores.redis.run_rows import require_whole
from ninelives.stores.redis.tables import waiting_signals
from ninelives.stores.redis.transaction import Transaction
from ninelives.stores.shared.rows import decoding, texts

Found = dict[str, Sequence[Any]]


def read_journal(tx: Transaction, run_id: str, since: int | None) -> Journal:
    """Read and verify a run's journal; see `Store.load_journal`."""
    found = _ask(tx, texts([run_id]), [b"" if since is None else max(0, min(since, 2**52))])
    return _journal(run_id, found)


def read_journals(tx: Transaction, names: Sequence[str]) -> list[Journal | NineLivesError]:
    """Read and verify the current turns of many runs; see `Store.load_journals`."""
    found = _ask(tx, texts(dict.fromkeys(names)), [b""])
    journals: list[Journal | NineLivesError] = []
    for run in names:
        try:
            journals.append(_journal(run, found))
        except (Corrupt, UnknownRun) as error:
            journals.append(error)
    return journals


def read_capsule(tx: Transaction, run_id: str) -> Capsule:
    """Return everything that is stored of a run; see `Maintenance.export_run`."""
    if not texts([run_id]):
        raise validation.unknown_run(run_id)
    names = tx.names
    of_run = (names.run, names.journal, names.signals, names.sent, names.items_of, names.holds)
    found = tx.call("capsule", [names.items, names.keys, *(name(run_id) for name in of_run)], [])
    rest, tail, lost, raw, waiting, count, sent, items, held = found
    row = encoding.run_of(run_id, rest or None, tail or None)
    if row is None:
        raise validation.unknown_run(run_id)
    require_whole(row, lost or None)
    records = tuple(encoding.record_of(one, run_id) for one in raw)
    chain.verify(run_id, row.base_check, row.base, records, length=row.length, head=row.head)
    # Those with an id are in both: as waiting, or as taken.
    queue = {one.number: one for raw in (sent, waiting) for one in waiting_signals(run_id, raw)}
    with decoding("the count of signals", run_id):
        last = int(count)
    journal = Journal(row, row.base, records, (), _items(items))
    return capsules.capsule_of(journal, queue.values(), last, map(encoding.key_of, held))


def read_news(tx: Transaction, seen: Mapping[str, int]) -> list[News]:
    """Return the news of runs whose counter has changed; see `Store.read_news`."""
    wanted = texts(seen)
    news = []
    for run, (rest, tail, _, _, _, _, signals, items) in _ask(
        tx, wanted, [b"news", *(seen[name] for name in wanted)]
    ).items():
        with suppress(Corrupt):
            row = encoding.run_of(run, rest, tail)
            if row is not None:
                news.append((row, waiting_signals(run, signals), _items(items)))
    return [News(*one, tx.now_ms) for one in news]


def _ask(tx: Transaction, runs: Sequence[str], values: Sequence[bytes | int]) -> Found:
    if not runs:
        return {}
    names = tx.names
    keys = [key(run) for run in runs for key in (names.run, names.journal, names.signals, names.items_of)]
    found = tx.call("journals", [names.items, *keys], list(values))
    return {runs[position - 1]: one for position, one in found}


def _journal(run: str, found: Found) -> Journal:
    """Return a run's journal, verified. Raises UnknownRun, Corrupt."""
    rest, tail, lost, *more = found.get(run, (b"", b"", b""))
    row = encoding.run_of(run, rest or None, tail or None)
    if row is None:
        raise validation.unknown_run(run)
    if not more:
        raise Corrupt("the run's row is torn", run=run)
    require_whole(row, lost or None)
    first, raw, previous, signals, items = more
    records = tuple(encoding.record_of(one, run) for one in raw)
    before = encoding.record_of(previous, run).check if previous else row.base_check
    chain.verify(run, before, int(first), records, length=row.length, head=row.head)
    return Journal(row, int(first), records, waiting_signals(run, signals), _items(items))


def _items(found: Sequence[bytes]) -> tuple[Item, ...]:
    return tuple(encoding.item_of(raw) for raw in found)
