"""A server's rows as one of the reference store's tables: loaded on first use, compared at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from typing import Any, TypeVar

from ninelives.core.rules import validation

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
        wanted = sorted({name for name in names if name not in self._rows}) if len(names) > 1 else names
        if wanted:
            self.fill(wanted, self._load([name for name in wanted if validation.is_text(name)]))

    def fill(self, names: Sequence[str], found: Mapping[str, Value]) -> None:
        """Add rows that were loaded; rows that are known already stay as they are."""
        for name in names:
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
