"""The rows that a transaction may change: by name, in drafts, and what each store does with them.

A draft is a layer over the rows. Writes to a draft are visible only through it until it is kept. A refused
commit's draft is dropped, so it leaves no trace.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import ChainMap
from collections.abc import Container, Iterable, MutableMapping, Sequence
from typing import Protocol, TypeVar

from msgspec import Struct, field

from ninelives.core.model.commit import Commit
from ninelives.core.model.counter import Counts
from ninelives.core.model.document import Document
from ninelives.core.model.inbox import Item, Signal
from ninelives.core.model.key import Key
from ninelives.core.model.run import Record, RunRow

Value = TypeVar("Value")


class OpenTransaction(Protocol):
    """What the rules need of a transaction: its time, and whether it wakes workers or output readers."""

    wakes: bool
    emits: bool

    @property
    def now_ms(self) -> int:
        """The store's wall clock."""


class Rows(Struct):
    """The rows that a commit may change. Values are never changed in place, only replaced.

    `holds` maps a run to the keys that it reserved, `waits` to the keys that it wants news of; `waiters` is
    the reverse of `waits`. `refers` maps a run to the blobs that its journal keeps alive. `children` maps a
    run to its child runs; some of them may have been pruned. A store that finds `holds` by its keys' rows
    need not keep them up to date.
    """

    runs: MutableMapping[str, RunRow] = field(default_factory=dict)
    signals: MutableMapping[str, tuple[Signal, ...]] = field(default_factory=dict)
    items: MutableMapping[str, Item] = field(default_factory=dict)
    items_of: MutableMapping[str, tuple[str, ...]] = field(default_factory=dict)
    keys: MutableMapping[str, Key] = field(default_factory=dict)
    holds: MutableMapping[str, frozenset[str]] = field(default_factory=dict)
    waits: MutableMapping[str, frozenset[str]] = field(default_factory=dict)
    waiters: MutableMapping[str, frozenset[str]] = field(default_factory=dict)
    refers: MutableMapping[str, frozenset[bytes]] = field(default_factory=dict)
    children: MutableMapping[str, tuple[str, ...]] = field(default_factory=dict)
    documents: MutableMapping[str, Document] = field(default_factory=dict)
    keeps_holds: bool = True

    def draft(self) -> Rows:
        """Return a layer over these rows."""
        layers = {name: _layer(getattr(self, name)) for name in _NAMES}
        return Rows(**layers, keeps_holds=self.keeps_holds)

    def keep(self, draft: Rows) -> None:
        """Apply what was written to a draft of these rows."""
        for name in _NAMES:
            getattr(self, name).update(getattr(draft, name).maps[0])

    def add_item(self, item: Item) -> None:
        """Insert or replace an item."""
        if item.id not in self.items:
            self.items_of[item.run] = (*self.items_of.get(item.run, ()), item.id)
        self.items[item.id] = item

    def add_hold(self, run: str, key: str) -> None:
        """Note that a run holds a key."""
        self.holds[run] = self.holds.get(run, frozenset()) | {key}


_NAMES = tuple(name for name in Rows.__struct_fields__ if name != "keeps_holds")


def _layer(table: MutableMapping[str, Value]) -> ChainMap[str, Value]:
    return ChainMap({}, table)


class Tables(ABC):
    """The rows of one transaction, and how its store reads and writes what is beside them."""

    rows: Rows

    @abstractmethod
    def prepare(self, batch: Sequence[Commit]) -> None:
        """Load what a batch will need, where loading in one go is cheaper."""

    @abstractmethod
    def write_back(self) -> None:
        """Write every row that has changed."""

    @abstractmethod
    def append(self, appended: Sequence[tuple[RunRow, Sequence[Record]]]) -> None:
        """Append sealed records to journals, and store which blobs they refer to."""

    @abstractmethod
    def known_blobs(self, digests: Sequence[bytes]) -> Container[bytes]:
        """Return which of these blobs exist."""

    @abstractmethod
    def count(self, counts: Counts) -> None:
        """Let the store's counters grow."""

    # Creating runs ------------------------------------------------------------------------------

    def find(self, names: Sequence[str]) -> dict[str, RunRow]:
        """Return the rows of those runs that exist."""
        found = ((name, self.rows.runs.get(name)) for name in names)
        return {name: run for name, run in found if run is not None}

    @abstractmethod
    def numbers(self, count: int) -> Iterable[int]:
        """Return the numbers of new runs, in order."""

    @abstractmethod
    def insert(self, made: Sequence[tuple[RunRow, Sequence[Record]]]) -> None:
        """Insert new runs with their first records."""

    # Signals and answers ------------------------------------------------------------------------

    def item(self, name: str) -> Item | None:
        """Return an inbox item, guarded against changes by others."""
        return self.rows.items.get(name)

    @abstractmethod
    def sent(self, run: RunRow, id: str) -> tuple[Signal | None, int]:
        """Return the signal with that id that was sent to a run, if any, and the next signal's number."""

    @abstractmethod
    def send(self, run: RunRow, signal: Signal) -> None:
        """Append a signal to a run's queue."""

    @abstractmethod
    def put_signals(self, run: RunRow, queue: Sequence[Signal]) -> None:
        """Store all signals that were ever sent to an imported run, in order."""

    # Salvage ------------------------------------------------------------------------------------

    @abstractmethod
    def stored(self, run: RunRow) -> Iterable[Record]:
        """Iterate over a run's records from its base on. The iterator raises Corrupt at a damaged one."""

    @abstractmethod
    def packed(self, digest: bytes) -> bytes | None:
        """Return the content of a blob as it is stored, if it exists."""


class CutTables(Tables):
    """Tables of a store in which records can be removed even if they are damaged."""

    @abstractmethod
    def cut(self, run: RunRow, seq: int) -> None:
        """Remove a run's records from a position on."""
