"""Capsules: everything that a store keeps of one run, in a form that any other store can take in.

And what a copy of a store is kept up to date by: which runs may have changed, and all business keys.
"""

from __future__ import annotations

from msgspec import Struct

from ninelives.core.model.inbox import Item, Signal
from ninelives.core.model.key import Key
from ninelives.core.model.run import Record, RunRow


class Capsule(Struct, frozen=True, kw_only=True):
    """One run, without what belongs to its store: number, owner and sessions (`core.rules.capsules`).

    `records` are those that are still stored, from `run.base` on. `signals` are those that wait, and those
    that were taken and have an id, by which a repeated one is known; `last_signal` counts all that were ever
    sent. `keys` are the business keys whose rows name the run. Blobs are beside it, by digest.
    """

    run: RunRow
    records: tuple[Record, ...]
    signals: tuple[Signal, ...] = ()
    last_signal: int = 0
    items: tuple[Item, ...] = ()
    keys: tuple[Key, ...] = ()

    @property
    def blobs(self) -> tuple[bytes, ...]:
        """Return the digests of all blobs that the run refers to, in order, each once."""
        found = [digest for record in self.records for digest in record.blobs]
        found += [digest for key in self.keys for digest in key.blobs]
        return tuple(dict.fromkeys(found))


class Move(Struct, frozen=True, kw_only=True):
    """A move of runs: its id, the id of the store that they go to, and that store's name for people."""

    id: str
    to: str
    url: str


class Imported(Struct, frozen=True, kw_only=True):
    """What `import_runs` made of a capsule: the run's row, whether it is new, the steps put in doubt."""

    run: RunRow
    is_new: bool
    doubts: tuple[str, ...] = ()


class RunMark(Struct, frozen=True, kw_only=True):
    """A run as it was listed. `stamp` differs after every change of the run's row.

    Every change of what belongs to a run (its records, signals, items, the keys that it holds) changes its
    row too.
    """

    id: str
    stamp: str
    length: int
    head: bytes
    created_ms: int
    is_final: bool


class Changes(Struct, frozen=True, kw_only=True):
    """Runs that may have changed. `store` is the id of the store's data: a restored copy has another.

    With `is_whole` false there is more of the same list: ask again with the cursor.
    """

    store: str
    runs: tuple[RunMark, ...]
    cursor: str
    is_whole: bool = True


class KeyPage(Struct, frozen=True):
    """Some of the business keys; an empty cursor says that these are the last."""

    keys: tuple[Key, ...]
    cursor: str
