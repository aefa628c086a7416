"""The server's rows as the reference store's tables: loaded on first use, written back at the end.

The rules of commits, ends and keys are those of `stores.shared.commit_rules`, which work on mappings and know
nothing of a server. Whatever their decisions depend on is compared when it is written (see transaction.py).
What is not compared is guarded by a row that is: a run's signals, items, waits and holds by the run's row;
the waiters of a key and the children of a run by a mark beside them, which every change sets to a new value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

from ninelives.core.model.commit import Commit, End
from ninelives.core.model.counter import Counts
from ninelives.core.model.document import Document
from ninelives.core.model.inbox import Item, ItemKind, ItemState, Signal
from ninelives.core.model.key import Key
from ninelives.core.model.run import Record, RunRow
from ninelives.stores.redis import encoding, lookups
from ninelives.stores.redis.run_rows import append_records, read_runs, refer, require_whole, save_run
from ninelives.stores.redis.server.connection import Command
from ninelives.stores.redis.server.lost_writes import LOST
from ninelives.stores.redis.transaction import Transaction
from ninelives.stores.shared import tables
from ninelives.stores.shared.lazy_tables import Table
from ninelives.stores.shared.rows import decoding, texts
from ninelives.stores.shared.tables import Rows

MARK = b""
"""The field of a collection that every change sets to a new value: no member has an empty name."""


class Question(NamedTuple):
    """How to read a row of a table, and how to decode the answer (None: it does not exist)."""

    commands: Callable[[str], Sequence[Command]]
    read: Callable[[str, Sequence[Any]], Any]


class Tables(tables.CutTables):
    """The tables of one transaction."""

    def __init__(self, tx: Transaction) -> None:
        self._tx, names = tx, tx.names
        self._questions: dict[int, Question] = {}
        nothing: frozenset[str] = frozenset()
        self.runs: Table[RunRow] = self._table(
            lambda run: [(b"HGET", names.run(run), part) for part in (b"r", b"t")], self._run
        )
        self.keys: Table[Key] = self._table(lambda key: [(b"HGET", names.keys, key.encode())], self._key)
        self.items: Table[Item] = self._table(lambda one: [(b"HGET", names.items, one.encode())], self._item)
        self.documents: Table[Document] = self._table(
            lambda name: [(b"HGET", names.documents, name.encode())], self._document
        )
        # The run's row guards these; it is read first.
        self.items_of: Table[tuple[str, ...]] = self._table(
            lambda run: [(b"ZRANGE", names.items_of(run), 0, -1)], _decoded, (), guard=self.runs
        )
        self.signals: Table[tuple[Signal, ...]] = self._table(
            lambda run: [(b"HVALS", names.signals(run))],
            lambda run, found: waiting_signals(run, found[0]),
            (),
            guard=self.runs,
        )
        self.holds: Table[frozenset[str]] = self._table(
            lambda run: [(b"SMEMBERS", names.holds(run))], _decoded_set, nothing, guard=self.runs
        )
        self.waits: Table[frozenset[str]] = self._table(
            lambda run: [(b"SMEMBERS", names.waits(run))], _decoded_set, nothing, guard=self.runs
        )
        # A mark beside them guards these.
        self.waiters: Table[frozenset[str]] = self._table(
            lambda key: [(b"HGETALL", names.waiters(key))],
            lambda key, found: frozenset(self._marked(names.waiters(key), found[0])),
            nothing,
        )
        self.children: Table[tuple[str, ...]] = self._table(
            lambda run: [(b"HGETALL", names.children(run))],
            lambda run, found: _by_number(self._marked(names.children(run), found[0])),
            (),
        )
        self.refers: Table[frozenset[bytes]] = Table(lambda _: {}, frozenset())
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
            documents=self.documents,
        )

    def prepare(self, batch: Sequence[Commit]) -> None:
        """Load what a batch will need, in one round trip for most."""
        ending = [one.run for one in batch if isinstance(one.change, End)]
        self._load(
            [
                # The runs first: a collection read before the row that guards it could be older than the row.
                (self.runs, [one.run for one in batch]),
                (self.holds, [*ending, *(one.run for one in batch if one.keys)]),
                (self.waits, ending),
                (self.items_of, [*ending, *(one.run for one in batch if one.opens)]),
                (self.signals, [one.run for one in batch if one.takes]),
                (self.keys, [op.key for one in batch for op in one.keys]),
                (self.documents, [one.name for commit in batch for one in commit.requires]),
                (self.documents, [op.account for one in batch for op in one.accounts]),
                (
                    self.items,
                    [name for one in batch for name in (*one.closes, *(new.id for new in one.opens))],
                ),
            ]
        )
        ended = [run for name in ending if (run := self.runs.get(name)) is not None]
        self._load(
            [
                (self.runs, [run.parent for run in ended if run.parent is not None]),
                (self.keys, [key for run in ended for key in self.holds[run.id]]),
                (self.items, [item for run in ended for item in self.items_of[run.id]]),
            ]
        )

    def write_back(self) -> None:
        """Queue everything that has changed."""
        tx, names = self._tx, self._tx.names
        for before, after in self.runs.changed().values():
            save_run(tx, before, after)
        for name, (_, key) in self.keys.changed().items():
            tx.do(b"HSET", names.keys, name.encode(), encoding.key_bytes(key))
        for _, document in self.documents.changed().values():
            lookups.save_document(tx, document)
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
            if item.kind is ItemKind.DAMAGE and item.state is ItemState.ANSWERED:
                tx.do(b"HDEL", names.run(item.run), LOST)  # a person has checked the run

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
            # No mark is left behind: for keys without waiters, which are nearly all, nothing is stored.
            tx.do(b"DEL", name)
            return
        for run in sorted(after - before):
            tx.do(b"HSET", name, run.encode(), b"1")
        for run in sorted(before - after):
            tx.do(b"HDEL", name, run.encode())
        tx.do(b"HSET", name, MARK, tx.mark)

    def append(self, appended: Sequence[tuple[RunRow, Sequence[Record]]]) -> None:
        """Append sealed records to journals, and store which blobs they refer to."""
        for run, records in appended:
            append_records(self._tx, run.id, records)

    def known_blobs(self, digests: Sequence[bytes]) -> set[bytes]:
        """Return which of these blobs exist."""
        return lookups.known_blobs(self._tx, digests)

    def count(self, counts: Counts) -> None:
        """Let the store's counters grow."""
        lookups.add_counts(self._tx, counts)

    # Creating runs ------------------------------------------------------------------------------

    def find(self, names: Sequence[str]) -> dict[str, RunRow]:
        """Return the rows of those runs that exist."""
        return read_runs(self._tx, names)

    def numbers(self, count: int) -> Iterable[int]:
        """Return the numbers of new runs; if the transaction is run again, they are lost."""
        # At once, not with the transaction: compared like other reads, it would make all creations collide.
        (last,) = self._tx.ask([(b"HINCRBY", self._tx.names.store, b"number", count)])
        # CRASH: numbers without runs; no run gets them, and nothing counts on them.
        return range(last - count + 1, last + 1)

    def insert(self, made: Sequence[tuple[RunRow, Sequence[Record]]]) -> None:
        """Insert new runs with their first records."""
        tx = self._tx
        for run, records in made:
            save_run(tx, None, run)
            append_records(tx, run.id, records)
            if run.parent is not None:
                children = tx.names.children(run.parent)
                tx.do(b"HSET", children, run.id.encode(), run.number)
                # A parent that ends at this moment must see its new child, and read the children again.
                tx.do(b"HSET", children, MARK, tx.mark)

    # Signals ------------------------------------------------------------------------------------

    def sent(self, run: RunRow, id: str) -> tuple[Signal | None, int]:
        """Return the signal with that id that was sent to a run, if any, and the next signal's number."""
        sent = self._tx.names.sent(run.id)
        count, known = self._tx.fields([(sent, b"n"), (sent, b"#" + id.encode())])
        with decoding("the count of signals", run.id):
            number = int(count or 0) + 1
        return (encoding.signal_of(run.id, known) if id and known is not None else None), number

    def send(self, run: RunRow, signal: Signal) -> None:
        """Append a signal to a run's queue."""
        tx, sent, raw = self._tx, self._tx.names.sent(run.id), encoding.signal_bytes(signal)
        tx.do(b"HSET", tx.names.signals(run.id), str(signal.number), raw)
        tx.do(b"HSET", sent, b"n", signal.number)
        if signal.id:
            tx.do(b"HSET", sent, b"#" + signal.id.encode(), raw)

    def put_signals(self, run: RunRow, queue: Sequence[Signal]) -> None:
        """Store the signals that wait for an imported run, the ids of all, and their count."""
        tx, names = self._tx, self._tx.names
        for signal in queue:
            raw = encoding.signal_bytes(signal)
            if signal.taken is None:
                tx.do(b"HSET", names.signals(run.id), str(signal.number), raw)
            if signal.id:
                tx.do(b"HSET", names.sent(run.id), b"#" + signal.id.encode(), raw)
        if queue:
            tx.do(b"HSET", names.sent(run.id), b"n", queue[-1].number)

    # Salvage ------------------------------------------------------------------------------------

    def stored(self, run: RunRow) -> Iterable[Record]:
        """Iterate over a run's records from its base on. Raises Corrupt if writes to the run were lost."""
        (lost,) = self._tx.fields([(self._tx.names.run(run.id), LOST)])
        require_whole(run, lost)
        (found,) = self._tx.ask([(b"LRANGE", self._tx.names.journal(run.id), 0, -1)])
        return (encoding.record_of(raw, run.id) for raw in found)

    def packed(self, digest: bytes) -> bytes | None:
        """Return the content of a blob as it is stored, if it exists."""
        return lookups.read_blobs(self._tx, [digest]).get(digest)

    def cut(self, run: RunRow, seq: int) -> None:
        """Remove a run's records from a position on."""
        journal = self._tx.names.journal(run.id)
        if seq > run.base:
            self._tx.do(b"LTRIM", journal, 0, seq - run.base - 1)
        else:
            self._tx.do(b"DEL", journal)

    # Loading ------------------------------------------------------------------------------------

    def _table(
        self,
        commands: Callable[[str], Sequence[Command]],
        read: Callable[[str, Sequence[Any]], Any],
        default: Any = None,
        guard: Table[Any] | None = None,
    ) -> Table[Any]:
        question = Question(commands, read)

        def load(names: Sequence[str]) -> Mapping[str, Any]:
            if guard is not None:
                # Loaded before the collection: a change between the two reads then shows as a conflict.
                guard.fetch(names)
            return self._found([(question, names)])[0]

        table: Table[Any] = Table(load, default)
        self._questions[id(table)] = question
        return table

    def _load(self, wanted: Sequence[tuple[Table[Any], Sequence[str]]]) -> None:
        """Load rows of many tables in one round trip, those that guard others first."""
        missing = [
            (table, [name for name in dict.fromkeys(names) if not table.knows(name)])
            for table, names in wanted
        ]
        found = self._found([(self._questions[id(table)], texts(names)) for table, names in missing])
        for (table, names), rows in zip(missing, found, strict=True):
            table.fill(names, rows)

    def _found(self, wanted: Sequence[tuple[Question, Sequence[str]]]) -> list[dict[str, Any]]:
        commands = [[one.commands(name) for name in names] for one, names in wanted]
        flat = [command for of_table in commands for of_row in of_table for command in of_row]
        answers = iter(self._tx.ask(flat) if flat else [])
        found: list[dict[str, Any]] = []
        for (question, names), of_table in zip(wanted, commands, strict=True):
            read = {
                name: question.read(name, list(islice(answers, len(of_row))))
                for name, of_row in zip(names, of_table, strict=True)
            }
            found.append({name: row for name, row in read.items() if row is not None})
        return found

    def _run(self, run: str, found: Sequence[Any]) -> RunRow | None:
        for part, value in zip((b"r", b"t"), found, strict=True):
            self._tx.expect(self._tx.names.run(run), part, value)
        return encoding.run_of(run, *found)

    def _key(self, key: str, found: Sequence[Any]) -> Key | None:
        self._tx.expect(self._tx.names.keys, key.encode(), found[0])
        return encoding.key_of(found[0]) if found[0] is not None else None

    def _item(self, item: str, found: Sequence[Any]) -> Item | None:
        self._tx.expect(self._tx.names.items, item.encode(), found[0])
        return encoding.item_of(found[0]) if found[0] is not None else None

    def _document(self, name: str, found: Sequence[Any]) -> Document | None:
        self._tx.expect(self._tx.names.documents, name.encode(), found[0])
        return encoding.document_of(found[0]) if found[0] is not None else None

    def _marked(self, name: bytes, flat: Sequence[bytes]) -> dict[str, bytes]:
        """Return the members of a collection; a write requires that its mark is unchanged."""
        members = dict(zip(flat[::2], flat[1::2], strict=True))
        self._tx.expect(name, MARK, members.pop(MARK, None))
        return {member.decode(): value for member, value in members.items()}


def _decoded(_: str, found: Sequence[Sequence[bytes]]) -> tuple[str, ...]:
    return tuple(name.decode() for name in found[0])


def _decoded_set(run: str, found: Sequence[Sequence[bytes]]) -> frozenset[str]:
    return frozenset(_decoded(run, found))


def _by_number(born: Mapping[str, bytes]) -> tuple[str, ...]:
    return tuple(sorted(born, key=lambda name: int(born[name])))


def waiting_signals(run: str, found: Sequence[bytes]) -> tuple[Signal, ...]:
    """Return signals in the order in which they were sent."""
    return tuple(sorted((encoding.signal_of(run, raw) for raw in found), key=lambda one: one.number))
