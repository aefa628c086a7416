"""The server's rows as the reference store's tables: loaded when asked for, written back at last.

The rules of commits, ends and keys are those of `backends.memory.commits`, which know mappings and nothing
of a server. Whatever they decide by is compared when it is written (see `transaction`). What is not
compared is guarded by a row that is: a run's signals, items, waits and holds by the run's own row, the
waiters of a key and the children of a run by a mark beside them, which each change sets anew.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ninelives.backends.memory.tables import Rows
from ninelives.backends.redis import encoding
from ninelives.backends.redis.runrows import read_runs, refer, save_run
from ninelives.backends.redis.transaction import Transaction
from ninelives.backends.table import Table
from ninelives.core.commits import Commit, End
from ninelives.core.inbox import Item, ItemState, Signal
from ninelives.core.keyring import Key
from ninelives.core.model import Run

MARK = b""
"""The field of a collection that each change sets anew: no member has an empty name."""


class Tables:
    """The tables of one transaction."""

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx
        nothing: frozenset[str] = frozenset()
        self.runs: Table[Run] = Table(lambda names: read_runs(tx, names))
        self.keys: Table[Key] = Table(self._load_keys)
        self.items: Table[Item] = Table(self._load_items)
        self.items_of: Table[tuple[str, ...]] = Table(self._load_items_of, ())
        self.signals: Table[tuple[Signal, ...]] = Table(self._load_signals, ())
        self.holds: Table[frozenset[str]] = Table(self._load_holds, nothing)
        self.waits: Table[frozenset[str]] = Table(self._load_waits, nothing)
        self.waiters: Table[frozenset[str]] = Table(self._load_waiters, nothing)
        self.refers: Table[frozenset[bytes]] = Table(lambda _: {}, frozenset())
        self.children: Table[tuple[str, ...]] = Table(self._load_children, ())
        self.rows = Rows(
            runs=self.runs,
            signals=self.signals,
            items=self.items,
            items_of=self.items_of,
            keys=self.keys,
            holds=self.holds,
            waits=self.waits,
            waiters=self.waiters,
            refers=self.refers,
            children=self.children,
        )

    def prepare(self, batch: Sequence[Commit]) -> None:
        """Load what a batch will ask for, each table in one question."""
        if not batch:
            return
        self.runs.fetch([one.run for one in batch])
        ending = [one.run for one in batch if isinstance(one.change, End)]
        parents = (self.runs.get(run) for run in ending)
        self.runs.fetch([run.parent for run in parents if run is not None and run.parent is not None])
        for table in (self.holds, self.waits, self.items_of):
            table.fetch(ending)
        self.holds.fetch([one.run for one in batch if one.keys])
        held = (key for run in ending for key in self.holds[run])
        self.keys.fetch([*held, *(op.key for one in batch for op in one.keys)])
        named = (name for one in batch for name in (*one.closes, *(new.id for new in one.opens)))
        self.items.fetch([*named, *(item for run in ending for item in self.items_of[run])])
        self.items_of.fetch([one.run for one in batch if one.opens])
        self.signals.fetch([one.run for one in batch if one.takes])

    def write_back(self) -> None:
        """Queue all that has changed."""
        tx, names = self._tx, self._tx.names
        for before, after in self.runs.changed().values():
            save_run(tx, before, after)
        for name, (_, key) in self.keys.changed().items():
            tx.do(b"HSET", names.keys, name.encode(), encoding.key_bytes(key))
        for known, item in self.items.changed().values():
            self._write_item(known, item)
        for run, (before_, queue) in self.signals.changed().items():
            self._take_signals(run, set(before_ or ()), queue)
        for run, (held, keys) in self.holds.changed().items():
            for key_ in sorted(keys - (held or frozenset())):
                tx.do(b"SADD", names.holds(run), key_.encode())
        for run, (waited, keys) in self.waits.changed().items():
            for key_ in sorted(keys - (waited or frozenset())):
                tx.do(b"SADD", names.waits(run), key_.encode())
            for key_ in sorted((waited or frozenset()) - keys):
                tx.do(b"SREM", names.waits(run), key_.encode())
        for key_, (known_, runs) in self.waiters.changed().items():
            self._write_waiters(key_, known_ or frozenset(), runs)
        for run, (_, digests) in self.refers.changed().items():
            refer(tx, run, digests)

    def _write_item(self, known: Item | None, item: Item) -> None:
        tx, names, name = self._tx, self._tx.names, item.id.encode()
        tx.do(b"HSET", names.items, name, encoding.item_bytes(item))
        if known is None:
            tx.do(b"NEXT", names.all_items, name)
            tx.do(b"NEXT", names.items_of(item.run), name)
            if item.state is ItemState.OPEN:
                tx.do(b"NEXT", names.inbox, name)
        elif item.state is not ItemState.OPEN:
            tx.do(b"ZREM", names.inbox, name)

    def _take_signals(self, run: str, before: set[Signal], queue: Sequence[Signal]) -> None:
        tx, names = self._tx, self._tx.names
        for signal in queue:
            if signal not in before and signal.taken is not None:
                tx.do(b"HDEL", names.signals(run), str(signal.number))
                if signal.id:
                    tx.do(b"HSET", names.sent(run), b"#" + signal.id.encode(), encoding.signal_bytes(signal))

    def _write_waiters(self, key: str, before: frozenset[str], after: frozenset[str]) -> None:
        tx, name = self._tx, self._tx.names.waiters(key)
        if not after:
            tx.do(b"DEL", name)
            return
        for run in sorted(after - before):
            tx.do(b"HSET", name, run.encode(), b"1")
        for run in sorted(before - after):
            tx.do(b"HDEL", name, run.encode())
        tx.do(b"HSET", name, MARK, tx.mark)

    # Loading ------------------------------------------------------------------------------------

    def _load_keys(self, names: Sequence[str]) -> Mapping[str, Key]:
        found = self._tx.fields([(self._tx.names.keys, name.encode()) for name in names])
        return {name: encoding.key_of(raw) for name, raw in zip(names, found, strict=True) if raw is not None}

    def _load_items(self, names: Sequence[str]) -> Mapping[str, Item]:
        found = self._tx.fields([(self._tx.names.items, name.encode()) for name in names])
        return {
            name: encoding.item_of(raw) for name, raw in zip(names, found, strict=True) if raw is not None
        }

    def _load_items_of(self, runs: Sequence[str]) -> Mapping[str, tuple[str, ...]]:
        self.runs.fetch(runs)
        found = self._tx.ask([(b"ZRANGE", self._tx.names.items_of(run), 0, -1) for run in runs])
        return {run: tuple(name.decode() for name in items) for run, items in zip(runs, found, strict=True)}

    def _load_signals(self, runs: Sequence[str]) -> Mapping[str, tuple[Signal, ...]]:
        self.runs.fetch(runs)
        found = self._tx.ask([(b"HVALS", self._tx.names.signals(run)) for run in runs])
        return {run: waiting_signals(run, raw) for run, raw in zip(runs, found, strict=True)}

    def _load_holds(self, runs: Sequence[str]) -> Mapping[str, frozenset[str]]:
        self.runs.fetch(runs)
        return self._sets(runs, [self._tx.names.holds(run) for run in runs])

    def _load_waits(self, runs: Sequence[str]) -> Mapping[str, frozenset[str]]:
        self.runs.fetch(runs)
        return self._sets(runs, [self._tx.names.waits(run) for run in runs])

    def _sets(self, runs: Sequence[str], keys: Sequence[bytes]) -> Mapping[str, frozenset[str]]:
        found = self._tx.ask([(b"SMEMBERS", key) for key in keys])
        return {
            run: frozenset(name.decode() for name in members)
            for run, members in zip(runs, found, strict=True)
        }

    def _load_waiters(self, keys: Sequence[str]) -> Mapping[str, frozenset[str]]:
        members = self._marked([self._tx.names.waiters(key) for key in keys])
        return {key: frozenset(runs) for key, runs in zip(keys, members, strict=True)}

    def _load_children(self, runs: Sequence[str]) -> Mapping[str, tuple[str, ...]]:
        members = self._marked([self._tx.names.children(run) for run in runs])
        return {
            run: tuple(sorted(born, key=lambda name: int(born[name])))
            for run, born in zip(runs, members, strict=True)
        }

    def _marked(self, names: Sequence[bytes]) -> list[dict[str, bytes]]:
        """Read collections, which must be the same when we write: their marks say so."""
        found = self._tx.ask([(b"HGETALL", name) for name in names])
        collections = []
        for name, flat in zip(names, found, strict=True):
            members = dict(zip(flat[::2], flat[1::2], strict=True))
            self._tx.expect(name, MARK, members.pop(MARK, None))
            collections.append({member.decode(): value for member, value in members.items()})
        return collections


def waiting_signals(run: str, found: Sequence[bytes]) -> tuple[Signal, ...]:
    """Return signals in the order in which they came."""
    return tuple(sorted((encoding.signal_of(run, raw) for raw in found), key=lambda one: one.number))
