"""The server's rows as tables of the rules: locked on first use, written back at the end.

The rules are those of `stores.shared`, which work on mappings and know nothing of a server. Whatever they may
change is locked before it is read (`FOR UPDATE`, in the order of names), so that their decisions still hold
when they are written. A row that does not exist cannot be locked: if another transaction inserts it first,
ours fails on its primary key and is made again.

What has no lock is guarded by the lock on its run's row: signals, items, waits, and children, which are not
created while their parent's row is locked. Waiters of a key are guarded by the key's row. Documents are
locked by name, before all rows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from ninelives.core.model.commit import Commit, End
from ninelives.core.model.counter import Counts
from ninelives.core.model.document import Document
from ninelives.core.model.inbox import Item, Signal
from ninelives.core.model.key import Key
from ninelives.core.model.run import Record, RunRow
from ninelives.stores.postgres import lookups
from ninelives.stores.postgres.server.connection import ServerAnswer
from ninelives.stores.postgres.transaction import Transaction, append_all, refer, runs_in, save_runs
from ninelives.stores.shared import rows
from ninelives.stores.shared.lazy_tables import Names, Sets, SqlTables, grouped, listed
from ninelives.stores.shared.tables import CutTables


class Tables(SqlTables, CutTables):
    """The tables of one transaction."""

    def __init__(self, tx: Transaction) -> None:
        super().__init__()
        self._tx = tx
        self._documents: tuple[list[str], ServerAnswer] | None = None

    def lock_documents(self, batch: Sequence[Commit]) -> None:
        """Lock the documents that a batch requires or changes, in the order of names; do not wait yet."""
        required = {one.name for commit in batch for one in commit.requires}
        changed = {op.account for commit in batch for op in commit.accounts}
        names = rows.texts(sorted(required | changed))
        if names:
            self._tx.ask("lock_documents", (names, [name in changed for name in names]))
            # A statement of its own, behind the locks: it sees what their last holders wrote.
            self._documents = names, self._tx.ask("find_documents", (names,))

    def prepare(self, batch: Sequence[Commit]) -> None:
        """Lock and load what a batch will need; all runs before all keys, each in the order of names."""
        self.runs.fetch([one.run for one in batch])
        if self._documents is not None:
            names, answer = self._documents
            self.documents.fill(names, {one.name: one for one in lookups.documents_in(answer.fetchall())})
        parents = (self.runs.get(one.run) for one in batch if isinstance(one.change, End))
        # A parent gets news of the end: lock it with the runs, since locking it after keys could deadlock.
        self.runs.fetch([run.parent for run in parents if run is not None and run.parent is not None])
        self.keys.fetch([op.key for one in batch for op in one.keys])
        self.items.fetch([name for one in batch for name in (*one.closes, *(new.id for new in one.opens))])
        self.signals.fetch([one.run for one in batch if one.takes])

    def append(self, appended: Sequence[tuple[RunRow, Sequence[Record]]]) -> None:
        """Append sealed records to journals, and store which blobs they refer to."""
        append_all(self._tx, [(run.number, records) for run, records in appended])

    def known_blobs(self, digests: Sequence[bytes]) -> set[bytes]:
        """Return which of these blobs exist."""
        return lookups.known_blobs(self._tx, digests)

    def count(self, counts: Counts) -> None:
        """Let the store's counters grow."""
        lookups.add_counts(self._tx, counts)

    # Creating runs ------------------------------------------------------------------------------

    def find(self, names: Sequence[str]) -> dict[str, RunRow]:
        """Lock and return the rows of those runs that exist."""
        self.runs.fetch(names)
        return super().find(names)

    def numbers(self, count: int) -> list[int]:
        """Return the numbers of new runs, in order."""
        return sorted(number for (number,) in self._tx.all("next_run_numbers", (count,)))

    def insert(self, made: Sequence[tuple[RunRow, Sequence[Record]]]) -> None:
        """Insert new runs with their first records."""
        self._tx.many("insert_run", [rows.row_of(run) for run, _ in made])
        self.append(made)

    # Signals and answers ------------------------------------------------------------------------

    def item(self, name: str) -> Item | None:
        """Return an inbox item, guarded by its run's row."""
        # An item never changes its run: lock that run's row first, then read the item again.
        for row in self._tx.all("read_items", (rows.texts([name]),)):
            self.runs.fetch([row[1]])
        found: Item | None = self.items.get(name)
        return found

    def sent(self, run: RunRow, id: str) -> tuple[Signal | None, int]:
        """Return the signal with that id that was sent to a run, if any, and the next signal's number."""
        for row in self._tx.all("read_signal", (run.number, id)) if id else ():
            return rows.signal_of(run.id, row), 0
        ((number,),) = self._tx.all("next_signal_number", (run.number,))
        return None, number

    def send(self, run: RunRow, signal: Signal) -> None:
        """Append a signal to a run's queue."""
        content = (signal.number, signal.name, signal.id, signal.body, signal.at_ms)
        self._tx.do("insert_signal", (run.number, *content))

    # Salvage ------------------------------------------------------------------------------------

    def stored(self, run: RunRow) -> Iterator[Record]:
        """Iterate over a run's records from its base on."""
        for row in self._tx.all("read_records", (run.number, run.base)):
            with rows.decoding("a record", run.id):
                record = rows.record_of(row)
            yield record

    def packed(self, digest: bytes) -> bytes | None:
        """Return the content of a blob as it is stored, if it exists."""
        return lookups.read_blobs(self._tx, [digest]).get(digest)

    def cut(self, run: RunRow, seq: int) -> None:
        """Remove a run's records from a position on."""
        self._tx.do("cut_records", (run.number, seq))

    # Loading ------------------------------------------------------------------------------------

    def _load_runs(self, names: Names) -> Mapping[str, RunRow]:
        return runs_in(self._tx.all("lock_runs", (names,)))

    def _load_keys(self, names: Names) -> Mapping[str, Key]:
        found = self._tx.all("lock_keys", (names,))
        with rows.decoding("a key"):
            return {row[0]: rows.key_of(row) for row in found}

    def _load_items(self, names: Names) -> Mapping[str, Item]:
        return {item.id: item for item in self._items_in("read_items", names)}

    def _open_items(self, names: Names) -> list[Item]:
        return self._items_in("open_items_of_runs", names)

    def _items_in(self, statement: str, names: Names) -> list[Item]:
        found = self._tx.all(statement, (names,))
        with rows.decoding("an inbox item"):
            return [rows.item_of(row) for row in found]

    def _load_signals(self, names: Names) -> Mapping[str, tuple[Signal, ...]]:
        queues: defaultdict[str, tuple[Signal, ...]] = defaultdict(tuple)
        for run, *row in self._tx.all("waiting_signals", (names,)):
            with rows.decoding("a signal", run):
                queues[run] = (*queues[run], rows.signal_of(run, tuple(row)))
        return queues

    def _held_keys(self, names: Names) -> Iterable[rows.Row]:
        return self._tx.all("held_keys", (names,))

    def _load_waits(self, names: Names) -> Sets:
        return grouped(self._tx.all("waits_of_runs", (names,)))

    def _load_waiters(self, names: Names) -> Sets:
        return grouped(self._tx.all("waiters_of_keys", (names,)))

    def _load_documents(self, names: Names) -> Mapping[str, Document]:
        return {one.name: one for one in lookups.documents_in(self._tx.all("find_documents", (names,)))}

    def _load_children(self, names: Names) -> Mapping[str, tuple[str, ...]]:
        return listed((parent, child) for child, parent in self._tx.all("live_children", (names,)))

    # Writing ------------------------------------------------------------------------------------

    def _save_runs(self, runs: Sequence[RunRow]) -> None:
        save_runs(self._tx, runs)

    def _save_keys(self, changed: Sequence[tuple[Key | None, Key]]) -> None:
        self._tx.many("insert_key", [rows.row_of_key(key) for known, key in changed if known is None])
        moved = (rows.row_of_key(key) for known, key in changed if known is not None)
        self._tx.many("update_key", [(*values, name) for name, *values in moved])

    def _save_items(self, changed: Sequence[tuple[Item | None, Item]]) -> None:
        self._tx.many("insert_item", [rows.row_of_item(item) for known, item in changed if known is None])
        moved = [item for known, item in changed if known is not None]
        answers = [(one.state.value, one.answer, one.by, one.answered_ms, one.id) for one in moved]
        self._tx.many("update_item", answers)

    def _save_documents(self, changed: Sequence[tuple[Document | None, Document]]) -> None:
        new = [rows.row_of_document(document) for known, document in changed if known is None]
        self._tx.many("insert_account", new)
        moved = [rows.row_of_document(document) for known, document in changed if known is not None]
        self._tx.many("update_document", moved)

    def _take_signals(self, taken: Sequence[Signal]) -> None:
        self._tx.many("take_signal", [(one.taken, one.run, one.number) for one in taken])

    def _save_waiters(self, added: Sequence[tuple[str, str]], dropped: Sequence[tuple[str, str]]) -> None:
        self._tx.many("add_waiter", added)
        self._tx.many("drop_waiter", dropped)

    def _refer(self, pairs: Sequence[tuple[bytes, int]]) -> None:
        refer(self._tx, pairs)
