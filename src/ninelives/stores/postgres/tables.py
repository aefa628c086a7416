"""The server's rows as tables of the reference store: locked on first use, written back at the end.

The rules of commits, ends and keys are those of `stores.shared.commit_rules`, which work on mappings and know
nothing of a server. Whatever they may change is locked before it is read (`FOR UPDATE`, in the order of
names), so that their decisions still hold when they are written. A row that does not exist cannot be locked:
if another transaction inserts it first, ours fails on its primary key and is made again.

What has no lock is guarded by the lock on its run's row: signals, items, waits, and children, which are not
created while their parent's row is locked. Waiters of a key are guarded by the key's row.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from ninelives.core.model.commit import Commit, End
from ninelives.core.model.inbox import Item, Signal
from ninelives.core.model.key import Key
from ninelives.core.model.run import RunRow
from ninelives.stores.postgres.transaction import Transaction, decoding, refer, runs_in, save_runs
from ninelives.stores.shared import rows
from ninelives.stores.shared.lazy_table import Table
from ninelives.stores.shared.tables import Rows


class Tables:
    """The tables of one transaction."""

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx
        nothing: frozenset[str] = frozenset()
        self.runs: Table[RunRow] = Table(lambda names: runs_in(tx.all("lock_runs", (names,))))
        self.keys: Table[Key] = Table(self._load_keys)
        self.items: Table[Item] = Table(lambda names: self._items_in("read_items", names))
        self.signals: Table[tuple[Signal, ...]] = Table(self._load_signals, ())
        self.waiters: Table[frozenset[str]] = Table(lambda keys: self._sets("waiters_of_keys", keys), nothing)
        self.refers: Table[frozenset[bytes]] = Table(lambda _: {}, frozenset())
        self.rows = Rows(
            runs=self.runs,
            signals=self.signals,
            items=self.items,
            items_of=Table(self._load_items_of, ()),
            keys=self.keys,
            holds=Table(self._load_holds, nothing),
            waits=Table(lambda names: self._sets("waits_of_runs", names), nothing),
            waiters=self.waiters,
            refers=self.refers,
            children=Table(self._load_children, ()),
        )

    def prepare(self, batch: Sequence[Commit]) -> None:
        """Lock and load what a batch will need; all runs before all keys, each in the order of names."""
        if not batch:
            return
        self.runs.fetch([one.run for one in batch])
        parents = (self.runs.get(one.run) for one in batch if isinstance(one.change, End))
        self.runs.fetch([run.parent for run in parents if run is not None and run.parent is not None])
        self.keys.fetch([op.key for one in batch for op in one.keys])
        self.items.fetch([name for one in batch for name in (*one.closes, *(new.id for new in one.opens))])
        self.signals.fetch([one.run for one in batch if one.takes])

    def write_back(self) -> None:
        """Send everything that has changed."""
        tx = self._tx
        runs = [run for _, run in self.runs.changed().values()]
        save_runs(tx, runs)
        keys = list(self.keys.changed().values())
        tx.many("insert_key", [rows.row_of_key(key) for known, key in keys if known is None])
        moved = (rows.row_of_key(key) for known, key in keys if known is not None)
        tx.many("update_key", [(*values, name) for name, *values in moved])
        items = list(self.items.changed().values())
        tx.many("insert_item", [rows.row_of_item(item) for known, item in items if known is None])
        tx.many(
            "update_item",
            [
                (item.state.value, item.answer, item.by, item.answered_ms, item.id)
                for known, item in items
                if known is not None
            ],
        )
        taken = [
            (signal.taken, signal.run, signal.number)
            for _, queue in self.signals.changed().values()
            for signal in queue
            if signal.taken is not None
        ]
        tx.many("take_signal", taken)
        self._write_waiters()
        refer(tx, [(d, self.runs[run].number) for run, (_, ds) in self.refers.changed().items() for d in ds])

    def _write_waiters(self) -> None:
        added, dropped = [], []
        for key, (known, runs) in self.waiters.changed().items():
            before = known or frozenset()
            added += [(key, run) for run in sorted(runs - before)]
            dropped += [(key, run) for run in sorted(before - runs)]
        self._tx.many("add_waiter", added)
        self._tx.many("drop_waiter", dropped)

    def _load_keys(self, names: Sequence[str]) -> Mapping[str, Key]:
        found = self._tx.all("lock_keys", (names,))
        with decoding("a key"):
            return {row[0]: rows.key_of(row) for row in found}

    def _load_signals(self, names: Sequence[str]) -> Mapping[str, tuple[Signal, ...]]:
        queues: defaultdict[str, tuple[Signal, ...]] = defaultdict(tuple)
        for run, *row in self._tx.all("waiting_signals", (names,)):
            with decoding("a signal", run):
                queues[run] = (*queues[run], rows.signal_of(run, tuple(row)))
        return queues

    def _items_in(self, statement: str, names: Sequence[str]) -> Mapping[str, Item]:
        found = self._tx.all(statement, (names,))
        with decoding("an inbox item"):
            return {row[0]: rows.item_of(row) for row in found}

    def _load_items_of(self, names: Sequence[str]) -> Mapping[str, tuple[str, ...]]:
        found = self._items_in("open_items_of_runs", names)
        self.items.keep(found)
        owned: defaultdict[str, tuple[str, ...]] = defaultdict(tuple)
        for item in found.values():
            owned[item.run] = (*owned[item.run], item.id)
        return owned

    def _load_holds(self, names: Sequence[str]) -> Mapping[str, frozenset[str]]:
        found = self._tx.all("held_keys", (names,))
        self.keys.fetch([key for key, _ in found])
        return _grouped((run, key) for key, run in found)

    def _sets(self, statement: str, names: Sequence[str]) -> Mapping[str, frozenset[str]]:
        return _grouped(self._tx.all(statement, (names,)))

    def _load_children(self, names: Sequence[str]) -> Mapping[str, tuple[str, ...]]:
        children: defaultdict[str, tuple[str, ...]] = defaultdict(tuple)
        for child, parent in self._tx.all("live_children", (names,)):
            children[parent] = (*children[parent], child)
        return children


def _grouped(pairs: Sequence[rows.Row] | Iterator[rows.Row]) -> dict[str, frozenset[str]]:
    sets: dict[str, frozenset[str]] = {}
    for name, member in pairs:
        sets[name] = sets.get(name, frozenset()) | {member}
    return sets
