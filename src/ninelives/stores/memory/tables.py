"""Everything that the store holds, and a transaction's view of it. Needs the store's lock."""

from __future__ import annotations

import secrets
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from ninelives.core.clock import Clock
from ninelives.core.journal.recovery_log import WHOLE, LogBase
from ninelives.core.model.commit import Commit
from ninelives.core.model.counter import Counts, Series
from ninelives.core.model.inbox import Signal
from ninelives.core.model.log_entry import LogEntry
from ninelives.core.model.run import Record, RunRow
from ninelives.core.model.session import Session
from ninelives.stores.shared import tables
from ninelives.stores.shared.tables import Rows


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
class Contents:
    """Everything that the store holds."""

    rows: Rows = field(default_factory=Rows)
    journals: dict[str, list[Record]] = field(default_factory=dict)
    sessions: dict[str, SessionLease] = field(default_factory=dict)
    log: list[LogEntry] = field(default_factory=list)
    log_base: LogBase = WHOLE
    blobs: dict[bytes, Blob] = field(default_factory=dict)
    counters: dict[Series, int] = field(default_factory=dict)
    last_number: int = 0
    id: str = field(default_factory=lambda: secrets.token_hex(16))

    def grow(self, counts: Counts) -> None:
        """Let counters grow."""
        for one, number in counts.items():
            self.counters[one] = self.counters.get(one, 0) + number


@dataclass(slots=True)
class Transaction:
    """What is under the lock: the contents, the clock, and whether to wake workers or output readers."""

    contents: Contents
    clock: Clock
    wakes: bool = False
    emits: bool = False

    @property
    def now_ms(self) -> int:
        """The clock's wall time."""
        return self.clock.now_ms()


class Tables(tables.CutTables):
    """The rows themselves: what is written to them is written."""

    def __init__(self, tx: Transaction) -> None:
        self._contents = tx.contents
        self.rows = tx.contents.rows

    def prepare(self, batch: Sequence[Commit]) -> None:
        """Do nothing: everything is loaded."""

    def write_back(self) -> None:
        """Do nothing."""

    def append(self, appended: Sequence[tuple[RunRow, Sequence[Record]]]) -> None:
        """Append sealed records to journals."""
        for run, records in appended:
            self._contents.journals[run.id].extend(records)

    def known_blobs(self, digests: Sequence[bytes]) -> Container[bytes]:
        """Return which of these blobs exist."""
        return self._contents.blobs.keys() & set(digests)

    def count(self, counts: Counts) -> None:
        """Let the store's counters grow."""
        self._contents.grow(counts)

    def numbers(self, count: int) -> Iterable[int]:
        """Return the numbers of new runs, in order."""
        self._contents.last_number += count
        return range(self._contents.last_number - count + 1, self._contents.last_number + 1)

    def insert(self, made: Sequence[tuple[RunRow, Sequence[Record]]]) -> None:
        """Insert new runs with their first records."""
        rows = self.rows
        for run, records in made:
            # A copy: the caller may change its mapping later,
            # and a row of a real store would not change with it.
            rows.runs[run.id] = replace(run, labels=dict(run.labels))
            rows.refers[run.id] = frozenset(digest for record in records for digest in record.blobs)
            self._contents.journals[run.id] = list(records)
            if run.parent is not None:
                rows.children[run.parent] = (*rows.children.get(run.parent, ()), run.id)

    def sent(self, run: RunRow, id: str) -> tuple[Signal | None, int]:
        """Return the signal with that id that was sent to a run, if any, and the next signal's number."""
        queue = self.rows.signals.get(run.id, ())
        # Signals stay in the queue when they are taken, so its length gives the next number.
        return next((one for one in queue if id and one.id == id), None), len(queue) + 1

    def send(self, run: RunRow, signal: Signal) -> None:
        """Append a signal to a run's queue."""
        self.rows.signals[run.id] = (*self.rows.signals.get(run.id, ()), signal)

    def put_signals(self, run: RunRow, queue: Sequence[Signal]) -> None:
        """Store all signals that were ever sent to an imported run."""
        if queue:
            self.rows.signals[run.id] = tuple(queue)

    def stored(self, run: RunRow) -> Iterable[Record]:
        """Return a run's records from its base on."""
        return self._contents.journals[run.id]

    def packed(self, digest: bytes) -> bytes | None:
        """Return the content of a blob as it is stored, if it exists."""
        blob = self._contents.blobs.get(digest)
        return blob.packed if blob is not None else None

    def cut(self, run: RunRow, seq: int) -> None:
        """Remove a run's records from a position on."""
        del self._contents.journals[run.id][seq - run.base :]
