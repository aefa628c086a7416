"""Rows that are loaded on first use, as tables of the rules; what has changed is written back at the end.

SQL stores find which keys a run holds by the keys' rows. They read a run's waiting signals, open items and
live children whole when one of them is needed.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from typing import Any, TypeVar

from ninelives.core.model.document import Document
from ninelives.core.model.inbox import Item, Signal
from ninelives.core.model.key import Key
from ninelives.core.model.run import RunRow
from ninelives.core.rules import validation
from ninelives.stores.shared.tables import Rows, Tables

Names = Sequence[str]
Sets = Mapping[str, frozenset[str]]

Value = TypeVar("Value")


class Table(MutableMapping[str, Value]):
    """A mapping that loads a row on first use; `default` stands for rows that do not exist."""

    __slots__ = ("_default", "_load", "_rows", "before")

    def __init__(
        self, load: Callable[[Sequence[str]], Mapping[str, Value]], default: Value | None = None
    ) -> None:
        self._load, self._default = load, default
        self._rows: dict[str, Value | None] = {}
        self.before: dict[str, Value | None] = {}

    def __getitem__(self, name: str) -> Value:
        if name not in self._rows:
            self.fetch([name])
        row = self._rows[name]
        if row is None:
            raise KeyError(name)
        return row

    def get(self, name: str, default: Any = None) -> Any:
        """Return a row; `default` if it does not exist. Faster than the mapping's own, which raises."""
        if name not in self._rows:
            self.fetch([name])
        row = self._rows[name]
        return default if row is None else row

    def __setitem__(self, name: str, row: Value) -> None:
        # Only the first write keeps what was loaded: `changed` compares the end with the beginning.
        self.before.setdefault(name, self._rows.get(name))
        self._rows[name] = row

    def __delitem__(self, name: str) -> None:
        raise NotImplementedError(f"rows are replaced, never deleted: {name}")

    def __iter__(self) -> Iterator[str]:
        return (name for name, row in self._rows.items() if row is not None)

    def __len__(self) -> int:
        return sum(row is not None for row in self._rows.values())

    def fetch(self, names: Sequence[str]) -> None:
        """Load rows that will be needed, in one request."""
        # Sorted: rows are locked in the order in which they are asked for, the same in every transaction.
        wanted = sorted({name for name in names if name not in self._rows}) if len(names) > 1 else names
        if wanted:
            self.fill(wanted, self._load([name for name in wanted if validation.is_text(name)]))

    def fill(self, names: Sequence[str], found: Mapping[str, Value]) -> None:
        """Add rows that were loaded; rows that are known already stay as they are."""
        for name in names:
            # What this transaction has already changed must not be overwritten by what the store still has.
            self._rows.setdefault(name, found.get(name, self._default))

    def knows(self, name: str) -> bool:
        """Return whether a row was loaded before, whether or not it exists."""
        return name in self._rows

    def keep(self, known: Mapping[str, Value]) -> None:
        """Add rows that were loaded in another way."""
        for name, row in known.items():
            self._rows.setdefault(name, row)

    def changed(self) -> dict[str, tuple[Value | None, Value]]:
        """Return the rows that differ from what was loaded, as (before, after)."""
        if not self.before:
            return {}
        after = {name: self[name] for name in self.before}
        return {name: (self.before[name], row) for name, row in after.items() if self.before[name] != row}


class SqlTables(Tables):
    """The tables of one transaction."""

    def __init__(self) -> None:
        nothing: frozenset[str] = frozenset()
        self.runs: Table[RunRow] = Table(self._load_runs)
        self.keys: Table[Key] = Table(self._load_keys)
        self.items: Table[Item] = Table(self._load_items)
        self.signals: Table[tuple[Signal, ...]] = Table(self._load_signals, ())
        self.documents: Table[Document] = Table(self._load_documents)
        self._waiters: Table[frozenset[str]] = Table(self._load_waiters, nothing)
        self._refers: Table[frozenset[bytes]] = Table(lambda _: {}, frozenset())
        self.rows = Rows(
            runs=self.runs,
            signals=self.signals,
            items=self.items,
            items_of=Table(self._load_items_of, ()),
            keys=self.keys,
            holds=Table(self._load_holds, nothing),
            waits=Table(self._load_waits, nothing),
            waiters=self._waiters,
            refers=self._refers,
            children=Table(self._load_children, ()),
            documents=self.documents,
            keeps_holds=False,
        )

    def write_back(self) -> None:
        """Write every row that has changed."""
        # Runs before keys: the order in which all transactions lock them.
        self._save_runs([run for _, run in self.runs.changed().values()])
        if keys := self.keys.changed():
            self._save_keys(list(keys.values()))
        if items := self.items.changed():
            self._save_items(list(items.values()))
        if queues := self.signals.changed():
            signals = (signal for _, queue in queues.values() for signal in queue)
            self._take_signals([signal for signal in signals if signal.taken is not None])
        if documents := self.documents.changed():
            self._save_documents(list(documents.values()))
        if waiters := self._waiters.changed():
            self._write_waiters(waiters)
        if refers := self._refers.changed():
            numbered = ((self.runs[run].number, digests) for run, (_, digests) in refers.items())
            self._refer([(digest, number) for number, digests in numbered for digest in digests])

    def put_signals(self, run: RunRow, queue: Sequence[Signal]) -> None:
        """Store all signals that were ever sent to an imported run."""
        for signal in queue:
            self.send(run, signal)
        self._take_signals([signal for signal in queue if signal.taken is not None])

    def _write_waiters(self, changed: Mapping[str, tuple[frozenset[str] | None, frozenset[str]]]) -> None:
        added: list[tuple[str, str]] = []
        dropped: list[tuple[str, str]] = []
        for key, (known, runs) in changed.items():
            before = known or frozenset()
            added += [(key, run) for run in sorted(runs - before)]
            dropped += [(key, run) for run in sorted(before - runs)]
        self._save_waiters(added, dropped)

    # Loading: each returns what exists of the named -----------------------------------------------

    @abstractmethod
    def _load_runs(self, names: Names) -> Mapping[str, RunRow]: ...
    @abstractmethod
    def _load_keys(self, names: Names) -> Mapping[str, Key]: ...
    @abstractmethod
    def _load_items(self, names: Names) -> Mapping[str, Item]: ...
    @abstractmethod
    def _load_signals(self, names: Names) -> Mapping[str, tuple[Signal, ...]]: ...
    @abstractmethod
    def _open_items(self, names: Names) -> Iterable[Item]: ...
    @abstractmethod
    def _held_keys(self, names: Names) -> Iterable[tuple[str, str]]: ...
    @abstractmethod
    def _load_waits(self, names: Names) -> Sets: ...
    @abstractmethod
    def _load_waiters(self, names: Names) -> Sets: ...
    @abstractmethod
    def _load_documents(self, names: Names) -> Mapping[str, Document]: ...
    @abstractmethod
    def _load_children(self, names: Names) -> Mapping[str, tuple[str, ...]]: ...

    def _load_items_of(self, names: Names) -> Mapping[str, tuple[str, ...]]:
        found = {item.id: item for item in self._open_items(names)}
        self.items.keep(found)
        return listed((item.run, item.id) for item in found.values())

    def _load_holds(self, names: Names) -> Sets:
        found = list(self._held_keys(names))
        # Locked and read by name: the statement that finds them
        # by run returns no row that a decision may rest on.
        self.keys.fetch([key for key, _ in found])
        return grouped((run, key) for key, run in found)

    # Writing --------------------------------------------------------------------------------------

    @abstractmethod
    def _save_runs(self, runs: Sequence[RunRow]) -> None: ...
    @abstractmethod
    def _save_keys(self, changed: Sequence[tuple[Key | None, Key]]) -> None: ...
    @abstractmethod
    def _save_items(self, changed: Sequence[tuple[Item | None, Item]]) -> None: ...
    @abstractmethod
    def _save_documents(self, changed: Sequence[tuple[Document | None, Document]]) -> None: ...
    @abstractmethod
    def _take_signals(self, taken: Sequence[Signal]) -> None: ...
    @abstractmethod
    def _save_waiters(self, added: Sequence[tuple[str, str]], dropped: Sequence[tuple[str, str]]) -> None: ...
    @abstractmethod
    def _refer(self, pairs: Sequence[tuple[bytes, int]]) -> None: ...


def grouped(pairs: Iterable[tuple[str, ...]]) -> dict[str, frozenset[str]]:
    """Return the members of each name."""
    return {name: frozenset(members) for name, members in listed(pairs).items()}


def listed(pairs: Iterable[tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """Return the members of each name, in order."""
    lists: dict[str, tuple[str, ...]] = {}
    for name, member in pairs:
        lists[name] = (*lists.get(name, ()), member)
    return lists
