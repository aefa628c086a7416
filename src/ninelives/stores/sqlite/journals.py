"""Reading journals: one from any record on, or the current turns of many in a few statements."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import msgspec

from ninelives.core.errors import Corrupt, UnknownRun
from ninelives.core.journal import chain
from ninelives.core.model.capsule import Capsule
from ninelives.core.model.inbox import Item, Signal
from ninelives.core.model.run import Journal, News, Record, RunRow
from ninelives.core.rules import capsules, validation
from ninelives.stores.shared import rows
from ninelives.stores.shared.rows import decoding
from ninelives.stores.sqlite import checks, halves
from ninelives.stores.sqlite.transaction import Transaction, find_runs, get_run


def read_journal(tx: Transaction, run_id: str, since: int | None) -> Journal:
    """Read and verify a run's journal; see `Store.load_journal`."""
    run = get_run(tx, run_id)
    first = min(max(run.turn_seq if since is None else since, run.base), run.length)
    with decoding("a record", run_id):
        records = tuple(halves.record_of(row) for row in tx.all("read_records", (run.number, first)))
    _verify(tx, run, first, records)
    return Journal(run, first, records, *_mail(tx, run))


def read_journals(tx: Transaction, names: Sequence[str]) -> list[Journal | UnknownRun]:
    """Read and verify the current turns of many runs; see `Store.load_journals`.

    Raises Corrupt when any of them is damaged: the caller then reads them one by one.
    """
    found = find_runs(tx, names)
    numbers = msgspec.json.encode([run.number for run in found.values()]).decode()
    records: defaultdict[int, list[Record]] = defaultdict(list)
    signals: defaultdict[str, list[Signal]] = defaultdict(list)
    items: defaultdict[str, list[Item]] = defaultdict(list)
    with decoding("a record, a signal or an inbox item"):
        turns = [(run.number, max(run.turn_seq, run.base)) for run in found.values()]
        for row in tx.many("read_turns", turns):
            records[row[0]].append(halves.record_of(row[1:]))
        for row in tx.all("signals_of_runs", (numbers,)):
            signals[row[0]].append(rows.signal_of(row[0], row[1:]))
        for row in tx.all("items_of_runs", (numbers,)):
            item = rows.item_of(row)
            items[item.run].append(item)
    _confirm_counts(
        tx,
        list(found.values()),
        sum(map(len, signals.values())),
        sum(map(len, items.values())),
    )
    journals: list[Journal | UnknownRun] = []
    for name in names:
        run = found.get(name)
        if run is None:
            journals.append(validation.unknown_run(name))
            continue
        first, of_turn = max(run.turn_seq, run.base), tuple(records[run.number])
        _verify(tx, run, first, of_turn)
        journals.append(Journal(run, first, of_turn, tuple(signals[name]), tuple(items[name])))
    return journals


def read_capsule(tx: Transaction, run_id: str) -> Capsule:
    """Return everything that is stored of a run; see `Maintenance.export_run`."""
    journal = read_journal(tx, run_id, 0)
    with decoding("a signal or a key", run_id):
        queue = [rows.signal_of(run_id, row) for row in tx.all("signals_of_run", (journal.run.number,))]
        keys = [rows.key_of(row) for row in tx.all("keys_of_run", (run_id,))]
    return capsules.capsule_of(journal, queue, max((one.number for one in queue), default=0), keys)


def _verify(tx: Transaction, run: RunRow, first: int, records: Sequence[Record]) -> None:
    before = run.base_check
    if first > run.base:
        row = tx.one("read_check", (run.number, first - 1))
        # A missing record gives a check that nothing follows: the chain reports the damage.
        before = row[0] if row is not None else b""
    chain.verify(run.id, before, first, records, length=run.length, head=run.head)


def read_news(tx: Transaction, seen: Mapping[str, int]) -> list[News]:
    """Return the news of runs whose counter has changed; see `Store.read_news`."""
    found = []
    for run, news in seen.items():
        # Nearly always there is none: the counter is compared in SQL, without reading the rows.
        if tx.one("has_news", (run, news)) is not None:
            try:
                row = get_run(tx, run)
                found.append(News(row, *_mail(tx, row), tx.now_ms))
            except Corrupt:
                continue
    return found


def _mail(tx: Transaction, run: RunRow) -> tuple[tuple[Signal, ...], tuple[Item, ...]]:
    """Return a run's waiting signals and its inbox items."""
    with decoding("a signal or an inbox item", run.id):
        signals = tuple(rows.signal_of(run.id, row) for row in tx.all("waiting_signals", (run.number,)))
        items = tuple(rows.item_of(row) for row in tx.all("items_of_run", (run.id,)))
    _confirm_counts(tx, [run], len(signals), len(items))
    return signals, items


def _confirm_counts(tx: Transaction, of: Sequence[RunRow], signals: int, items: int) -> None:
    """Count the runs' waiting signals and items by another index: a damaged one must not hide any.

    Raises Corrupt.
    """
    numbers = msgspec.json.encode([run.number for run in of]).decode()
    names = msgspec.json.encode([run.id for run in of]).decode()
    if tx.all("count_waiting_signals", (numbers,)) != [(signals,)]:
        raise checks.hidden("signals", "a signal")
    if tx.all("count_items", (names,)) != [(items,)]:
        raise checks.hidden("items", "an item")
