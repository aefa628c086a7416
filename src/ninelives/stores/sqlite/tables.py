"""Rows of the file as tables of the rules. The writers' lock guards them all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import apsw

from ninelives.core.errors import Corrupt
from ninelives.core.model.commit import Commit
from ninelives.core.model.counter import Counts
from ninelives.core.model.document import Document
from ninelives.core.model.inbox import Item, ItemState, Signal
from ninelives.core.model.key import Key
from ninelives.core.model.run import Record, RunRow
from ninelives.stores.shared import rows
from ninelives.stores.shared.lazy_tables import Names, Sets, SqlTables
from ninelives.stores.shared.rows import decoding
from ninelives.stores.sqlite import checks, halves, lookups
from ninelives.stores.sqlite.transaction import (
    Transaction,
    append_all,
    find_key,
    find_run,
    find_runs,
    refer,
    save_key,
    save_labels,
    save_runs,
)


class Tables(SqlTables):
    """The tables of one transaction."""

    def __init__(self, tx: Transaction) -> None:
        super().__init__()
        self._tx = tx

    def prepare(self, batch: Sequence[Commit]) -> None:
        """Do nothing: to load rows one by one costs no round trips."""

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
        """Return the rows of those runs that exist."""
        return find_runs(self._tx, names)

    def numbers(self, count: int) -> Iterable[int]:
        """Return the numbers of new runs, in order."""
        ((first,),) = self._tx.all("next_run_numbers", (count,))
        return range(first, first + count)

    def insert(self, made: Sequence[tuple[RunRow, Sequence[Record]]]) -> None:
        """Insert new runs with their first records."""
        self._tx.write("insert_run", [checks.sealed_run(run) for run, _ in made])
        for run, _ in made:
            if run.labels:
                save_labels(self._tx, run)
        self.append(made)

    # Signals ------------------------------------------------------------------------------------

    def sent(self, run: RunRow, id: str) -> tuple[Signal | None, int]:
        """Return the signal with that id that was sent to a run, if any, and the next signal's number."""
        if id:
            row = self._tx.one("read_signal", (run.number, id))
            if row is not None:
                return rows.signal_of(run.id, row), 0
            if self._tx.one("signal_again", (run.number, id)) is not None:
                # A signal that its index hides would be accepted, and delivered, a second time.
                raise checks.hidden("signals", id)
        ((number,),) = self._tx.all("next_signal_number", (run.number,))
        return None, number

    def send(self, run: RunRow, signal: Signal) -> None:
        """Append a signal to a run's queue."""
        content = (signal.number, signal.name, signal.id, signal.body, signal.at_ms, None, run.number)
        self._tx.do("insert_signal", checks.sealed("signals", content))

    # Salvage ------------------------------------------------------------------------------------

    def stored(self, run: RunRow) -> Iterator[Record]:
        """Iterate over a run's records from its base on, each read by itself: pages may be damaged."""
        for seq in range(run.base, run.length):
            try:
                row = self._tx.one("read_record", (run.number, seq))
            except apsw.Error as error:
                raise Corrupt(str(error)) from error
            if row is None:
                return
            with decoding("a record", run.id):
                record = halves.record_of(row)
            yield record

    def packed(self, digest: bytes) -> bytes | None:
        """Return the content of a blob as it is stored, if it exists."""
        try:
            return lookups.read_blobs(self._tx, [digest]).get(digest)
        except apsw.Error as error:
            raise Corrupt(str(error)) from error

    # Loading ------------------------------------------------------------------------------------

    def _load_runs(self, names: Names) -> Mapping[str, RunRow]:
        found = ((name, find_run(self._tx, name)) for name in names)
        return {name: run for name, run in found if run is not None}

    def _load_keys(self, names: Names) -> Mapping[str, Key]:
        found = ((name, find_key(self._tx, name)) for name in names)
        return {name: key for name, key in found if key is not None}

    def _load_items(self, names: Names) -> Mapping[str, Item]:
        found = [row for name in names for row in self._tx.all("read_item", (name,))]
        with decoding("an inbox item"):
            return {row[0]: rows.item_of(row) for row in found}

    def _open_items(self, names: Names) -> list[Item]:
        found = [row for name in names for row in self._tx.all("open_items_of_run", (name,))]
        with decoding("an inbox item"):
            return [rows.item_of(row) for row in found]

    def _load_signals(self, names: Names) -> Mapping[str, tuple[Signal, ...]]:
        queues: dict[str, tuple[Signal, ...]] = {}
        for name in names:
            found = self._tx.all("waiting_signals", (self.runs[name].number,))
            with decoding("a signal", name):
                queues[name] = tuple(rows.signal_of(name, row) for row in found)
        return queues

    def _held_keys(self, names: Names) -> Iterable[tuple[str, str]]:
        return [(row[0], name) for name in names for row in self._tx.all("held_keys_of_run", (name,))]

    def _load_waits(self, names: Names) -> Sets:
        return {name: frozenset(key for _, key in self._tx.all("waits", (name,))) for name in names}

    def _load_waiters(self, names: Names) -> Sets:
        return {name: frozenset(run for (run,) in self._tx.all("waiters", (name,))) for name in names}

    def _load_documents(self, names: Names) -> Mapping[str, Document]:
        found = ((name, lookups.find_document(self._tx, name)) for name in names)
        return {name: document for name, document in found if document is not None}

    def _load_children(self, names: Names) -> Mapping[str, tuple[str, ...]]:
        return {name: tuple(row[0] for row in self._tx.all("live_children", (name,))) for name in names}

    # Writing ------------------------------------------------------------------------------------

    def _save_runs(self, runs: Sequence[RunRow]) -> None:
        save_runs(self._tx, runs)

    def _save_keys(self, changed: Sequence[tuple[Key | None, Key]]) -> None:
        for _, key in changed:
            save_key(self._tx, key)

    def _save_items(self, changed: Sequence[tuple[Item | None, Item]]) -> None:
        tx = self._tx
        for known, item in changed:
            if known is None:
                # An item that its index hides may be answered already: a new one would ask the person again.
                if tx.one("item_again", (item.run, item.id)) is not None:
                    raise checks.hidden("items", item.id)
                tx.do("insert_item", checks.sealed("items", rows.row_of_item(item)))
            elif item.state is ItemState.ANSWERED:
                tx.do("answer_item", (item.answer, item.by, item.answered_ms, item.id))
            else:
                tx.do("close_item", (item.id,))

    def _save_documents(self, changed: Sequence[tuple[Document | None, Document]]) -> None:
        for _, document in changed:
            lookups.save_document(self._tx, document)

    def _take_signals(self, taken: Sequence[Signal]) -> None:
        for signal in taken:
            self._tx.do("take_signal", (signal.taken, self.runs[signal.run].number, signal.number))

    def _save_waiters(self, added: Sequence[tuple[str, str]], dropped: Sequence[tuple[str, str]]) -> None:
        for key, run in added:
            self._tx.do("add_waiter", checks.sealed("waiters", (run, key)))
        for key, run in dropped:
            self._tx.do("drop_waiter", (run, key))

    def _refer(self, pairs: Sequence[tuple[bytes, int]]) -> None:
        for digest, number in pairs:
            refer(self._tx, number, [digest])
