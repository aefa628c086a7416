"""The tables: rows by name, and drafts of them.

A draft is a layer over the tables. Writes to a draft are visible only through it until it is kept. A refused
commit's draft is dropped, so it leaves no trace.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import MutableMapping
from dataclasses import dataclass, field
from typing import TypeVar

from ninelives.core.model.inbox import Item, Signal
from ninelives.core.model.key import Key
from ninelives.core.model.log_entry import LogEntry
from ninelives.core.model.run import Record, RunRow
from ninelives.core.model.session import Session

Value = TypeVar("Value")


@dataclass(slots=True)
class Rows:
    """The rows that a commit may change. Values are never changed in place, only replaced.

    `holds` maps a run to the keys that it reserved, `waits` to the keys that it wants news of; `waiters` is
    the reverse of `waits`. `refers` maps a run to the blobs that its journal keeps alive. `children` maps a
    run to its child runs; some of them may have been pruned.
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

    def draft(self) -> Rows:
        """Return a layer over these rows."""
        return Rows(*(_layer(getattr(self, name)) for name in _NAMES))

    def keep(self, draft: Rows) -> None:
        """Apply what was written to a draft of these rows."""
        for name in _NAMES:
            getattr(self, name).update(getattr(draft, name).maps[0])

    def add_item(self, item: Item) -> None:
        """Insert or replace an item."""
        if item.id not in self.items:
            self.items_of[item.run] = (*self.items_of.get(item.run, ()), item.id)
        self.items[item.id] = item


_NAMES = tuple(Rows.__dataclass_fields__)


def _layer(table: MutableMapping[str, Value]) -> ChainMap[str, Value]:
    return ChainMap({}, table)


@dataclass(slots=True)
class SessionLease:
    """A session's row, and when its lease was last renewed by the boot clock, which leases are judged by."""

    session: Session
    renewed_boot_ms: int

    def left_ms(self, boot_ms: int) -> int:
        """Return how much of the lease is left."""
        return max(0, self.renewed_boot_ms + self.session.lease_ms - boot_ms)


@dataclass(slots=True)
class Blob:
    """The packed content of a blob, and when it was last put."""

    packed: bytes
    put_ms: int


@dataclass(slots=True)
class Tables:
    """Everything that the store holds."""

    rows: Rows = field(default_factory=Rows)
    journals: dict[str, list[Record]] = field(default_factory=dict)
    sessions: dict[str, SessionLease] = field(default_factory=dict)
    log: list[LogEntry] = field(default_factory=list)
    blobs: dict[bytes, Blob] = field(default_factory=dict)
    last_number: int = 0
