"""A server's rows as one of the reference store's tables: loaded when asked for, and compared at last."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from typing import TypeVar

from ninelives.core.rules import validation

Value = TypeVar("Value")


class Table(MutableMapping[str, Value]):
    """A mapping whose rows are loaded when first asked for; `default` stands for those that are not there."""

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

    def __setitem__(self, name: str, row: Value) -> None:
        self.before.setdefault(name, self._rows.get(name))
        self._rows[name] = row

    def __delitem__(self, name: str) -> None:
        raise NotImplementedError(f"rows are replaced, never deleted: {name}")

    def __iter__(self) -> Iterator[str]:
        return (name for name, row in self._rows.items() if row is not None)

    def __len__(self) -> int:
        return sum(row is not None for row in self._rows.values())

    def fetch(self, names: Sequence[str]) -> None:
        """Load rows that will be asked for, in one question."""
        wanted = sorted({name for name in names if name not in self._rows})
        if wanted:
            self.fill(wanted, self._load([name for name in wanted if validation.is_text(name)]))

    def fill(self, names: Sequence[str], found: Mapping[str, Value]) -> None:
        """Take what was found of rows that were asked for; what is known already stays as it is."""
        for name in names:
            self._rows.setdefault(name, found.get(name, self._default))

    def knows(self, name: str) -> bool:
        """Tell whether a row was asked for before, there or not."""
        return name in self._rows

    def keep(self, known: Mapping[str, Value]) -> None:
        """Take rows that were loaded on another way."""
        for name, row in known.items():
            self._rows.setdefault(name, row)

    def changed(self) -> dict[str, tuple[Value | None, Value]]:
        """Return what is not as it was loaded: before and after."""
        after = {name: self[name] for name in self.before}
        return {name: (self.before[name], row) for name, row in after.items() if self.before[name] != row}
