"""Reading journals: one from any record on, or the current turns of many in a few queries."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress

from ninelives.core.errors import Corrupt, NineLivesError
from ninelives.core.journal import chain
from ninelives.core.model.capsule import Capsule
from ninelives.core.model.inbox import Item, Signal
from ninelives.core.model.run import Journal, News, Record, RunRow
from ninelives.core.rules import capsules, validation
from ninelives.stores.postgres.lookups import find_runs
from ninelives.stores.postgres.transaction import Transaction, get_run
from ninelives.stores.shared import rows
from ninelives.stores.shared.rows import decoding, texts


def read_journal(tx: Transaction, run_id: str, since: int | None) -> Journal:
    """Read and verify a run's journal; see `Store.load_journal`."""
    run = get_run(tx, run_id)
    first = min(max(run.turn_seq if since is None else since, run.base), run.length)
    return _Reading(tx, [(run, first)]).journal(run)


def read_journals(tx: Transaction, names: Sequence[str]) -> list[Journal | NineLivesError]:
    """Read and verify the current turns of many runs; see `Store.load_journals`.

    Raises Corrupt when any of them is damaged: the caller then reads them one by one.
    """
    found = find_runs(tx, names)
    reading = _Reading(tx, [(run, max(run.turn_seq, run.base)) for run in found.values()])
    return [reading.journal(found[name]) if name in found else validation.unknown_run(name) for name in names]


def read_capsule(tx: Transaction, run_id: str) -> Capsule:
    """Return everything that is stored of a run; see `Maintenance.export_run`."""
    journal = read_journal(tx, run_id, 0)
    signals, held = tx.ask("signals_of_run", (journal.run.number,)), tx.ask("keys_of_run", (run_id,))
    with decoding("a signal or a key", run_id):
        queue = [rows.signal_of(run_id, row) for row in signals.fetchall()]
        keys = [rows.key_of(row) for row in held.fetchall()]
    return capsules.capsule_of(journal, queue, max((one.number for one in queue), default=0), keys)


class _Reading:
    """The records, signals and items of some runs, each from one record on: queried in one round trip."""

    def __init__(self, tx: Transaction, firsts: Sequence[tuple[RunRow, int]]) -> None:
        self._firsts = {run.id: first for run, first in firsts}
        numbers, starts = [run.number for run, _ in firsts], list(self._firsts.values())
        names = list(self._firsts)
        records = tx.ask("read_turns", (numbers, starts))
        # The record before a turn is not loaded; only its check is needed to begin the chain.
        before = tx.ask("read_checks", (numbers, [start - 1 for start in starts]))
        signals, items = tx.ask("waiting_signals", (names,)), tx.ask("items_of_runs", (names,))
        self._records: defaultdict[int, list[Record]] = defaultdict(list)
        with decoding("a record", names[0] if len(names) == 1 else None):
            for number, *row in records.fetchall():
                self._records[number].append(rows.record_of(tuple(row)))
        self._before: dict[int, bytes] = dict(before.fetchall())
        self.signals, self.items = _signals_in(signals.fetchall()), _items_in(items.fetchall())

    def journal(self, run: RunRow) -> Journal:
        """Return a run's journal, verified."""
        first, records = self._firsts[run.id], tuple(self._records[run.number])
        before = run.base_check if first <= run.base else self._before.get(run.number, b"")
        chain.verify(run.id, before, first, records, length=run.length, head=run.head)
        return Journal(run, first, records, tuple(self.signals[run.id]), tuple(self.items[run.id]))


def _signals_in(found: Sequence[rows.Row]) -> defaultdict[str, list[Signal]]:
    signals: defaultdict[str, list[Signal]] = defaultdict(list)
    for run, *row in found:
        with decoding("a signal", run):
            signals[run].append(rows.signal_of(run, tuple(row)))
    return signals


def _items_in(found: Sequence[rows.Row]) -> defaultdict[str, list[Item]]:
    items: defaultdict[str, list[Item]] = defaultdict(list)
    for row in found:
        with decoding("an inbox item", row[1]):
            items[row[1]].append(rows.item_of(row))
    return items


def read_news(tx: Transaction, seen: Mapping[str, int]) -> list[News]:
    """Return the news of runs whose counter has changed; see `Store.read_news`."""
    wanted = texts(list(seen))
    found: dict[str, RunRow] = {}
    for row in tx.all("runs_with_news", (wanted, [seen[name] for name in wanted])):
        with suppress(Corrupt), decoding("a run's row"):
            found[row[0]] = rows.run_of(row)
    if not found:
        return []
    names = list(found)
    signal_rows, item_rows = tx.ask("waiting_signals", (names,)), tx.ask("items_of_runs", (names,))
    signals, items = _signals_in(signal_rows.fetchall()), _items_in(item_rows.fetchall())
    return [
        News(found[name], tuple(signals[name]), tuple(items[name]), tx.now_ms)
        for name in seen
        if name in found
    ]
