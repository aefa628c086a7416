"""Rows of an SQL store as tables: loaded on first use, and what has changed is written back at the end.

Which keys a run holds is read from the keys' rows. A run's waiting signals, open items and live children are
read whole when one of them is needed.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence

from ninelives.core.model.inbox import Item, Signal
from ninelives.core.model.key import Key
from ninelives.core.model.run import RunRow
from ninelives.stores.shared.lazy_table import Table
from ninelives.stores.shared.tables import Rows, Tables

Names = Sequence[str]
Sets = Mapping[str, frozenset[str]]


class SqlTables(Tables):
    """The tables of one transaction."""

    def __init__(self) -> None:
        nothing: frozenset[str] = frozenset()
        self.runs: Table[RunRow] = Table(self._load_runs)
        self.keys: Table[Key] = Table(self._load_keys)
        self.items: Table[Item] = Table(self._load_items)
        self.signals: Table[tuple[Signal, ...]] = Table(self._load_signals, ())
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
            keeps_holds=False,
        )

    def write_back(self) -> None:
        """Write every row that has changed."""
        self._save_runs([run for _, run in self.runs.changed().values()])
        if keys := self.keys.changed():
            self._save_keys(list(keys.values()))
        if items := self.items.changed():
            self._save_items(list(items.values()))
        if queues := self.signals.changed():
            signals = (signal for _, queue in queues.values() for signal in queue)
            self._take_signals([signal for signal in signals if signal.taken is not None])
        if waiters := self._waiters.changed():
            self._write_waiters(waiters)
        if refers := self._refers.changed():
            numbered = ((self.runs[run].number, digests) for run, (_, digests) in refers.items())
            self._refer([(digest, number) for number, digests in numbered for digest in digests])

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
    def _load_children(self, names: Names) -> Mapping[str, tuple[str, ...]]: ...

    def _load_items_of(self, names: Names) -> Mapping[str, tuple[str, ...]]:
        found = {item.id: item for item in self._open_items(names)}
        self.items.keep(found)
        return listed((item.run, item.id) for item in found.values())

    def _load_holds(self, names: Names) -> Sets:
        found = list(self._held_keys(names))
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
