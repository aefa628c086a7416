"""An open transaction. Writes are queued, and go out with the next statement whose answer is needed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ninelives.core.clock import Clock
from ninelives.core.model.run import Record, RunRow
from ninelives.core.rules import validation
from ninelives.stores.postgres.server.connection import ServerAnswer, ServerConnection
from ninelives.stores.postgres.server.queries import Statement, Values
from ninelives.stores.shared import rows
from ninelives.stores.shared.sessions import ObservedLeases


class Transaction:
    """An open transaction: its connection, its time, and whether to wake workers or output readers."""

    __slots__ = (
        "_clock",
        "_connection",
        "_sql",
        "_time",
        "count",
        "emits",
        "identity",
        "is_changed",
        "leases",
        "version",
        "wakes",
    )

    def __init__(
        self,
        connection: ServerConnection,
        sql: Mapping[str, Statement],
        clock: Clock | None,
        leases: ObservedLeases,
    ) -> None:
        self._connection, self._sql, self._clock, self.leases = connection, sql, clock, leases
        self._time: ServerAnswer | int | None = None
        self.count, self.version, self.identity = 0, 0, ""
        self.is_changed = self.wakes = self.emits = False

    def begin(self, writer: str | None) -> None:
        """Begin; a writer also counts the transaction in its row, so that its fate can be read later."""
        if writer is None:
            self._send("begin_read", ())
            self._time = self._send("read_clock", ()) if self._clock is None else None
            return
        self._send("begin", ())
        self._time = self._send("count_write", (writer,))

    def note_count(self) -> None:
        """Read the server's answer to a writer's begin: its count, its clock, the schema's version."""
        if isinstance(self._time, ServerAnswer):
            self._note(self._time)

    def _note(self, said: ServerAnswer) -> None:
        ((self._time, *of_writer),) = said.fetchall()
        if of_writer:
            self.count, self.version, self.identity = of_writer

    @property
    def now_ms(self) -> int:
        """The store's wall clock when the transaction began."""
        if self._clock is not None:
            return self._clock.now_ms()
        if isinstance(self._time, ServerAnswer):
            self._note(self._time)
        return self._time if isinstance(self._time, int) else 0

    @property
    def boot_ms(self) -> int:
        """The clock that leases are judged by: the server's."""
        return self._clock.boot_ms() if self._clock is not None else self.now_ms

    @property
    def given_now_ms(self) -> int | None:
        """The time to write, or None if the server should write its own."""
        return self._clock.now_ms() if self._clock is not None else None

    def ask(self, name: str, values: Values = ()) -> ServerAnswer:
        """Send a query without waiting; the answer is fetched later."""
        return self._send(name, values)

    def all(self, name: str, values: Values = ()) -> list[rows.Row]:
        """Send a query, and wait for all rows of the answer."""
        return self._send(name, values).fetchall()

    def do(self, name: str, values: Values = ()) -> None:
        """Send a statement that changes something."""
        self.is_changed = True
        self._send(name, values)

    def many(self, name: str, values: Sequence[Values]) -> None:
        """Send a statement that changes something once for each set of values."""
        if values:
            self.is_changed = True
            for one in values:
                self._send(name, one)

    def _send(self, name: str, values: Values) -> ServerAnswer:
        return self._connection.send(self._sql[name], values)


class LoneStatement(Transaction):
    """Each statement is a transaction by itself: for calls that need one, which may safely be repeated."""

    __slots__ = ("_run",)

    def __init__(self, run: Callable[[str, Values], list[rows.Row]]) -> None:
        self._run = run

    def all(self, name: str, values: Values = ()) -> list[rows.Row]:
        """Run a statement and return its rows."""
        return self._run(name, values)


def runs_in(found: Sequence[rows.Row]) -> dict[str, RunRow]:
    """Return the runs of rows by id. Raises Corrupt."""
    by_name = {}
    for row in found:
        with rows.decoding("the run's row", row[0]):
            by_name[row[0]] = rows.run_of(row)
    return by_name


def get_run(tx: Transaction, run: str) -> RunRow:
    """Return a run's row. Raises UnknownRun."""
    found = runs_in(tx.all("read_runs", (rows.texts([run]),)))
    if run not in found:
        raise validation.unknown_run(run)
    return found[run]


def save_runs(tx: Transaction, changed: Sequence[RunRow]) -> None:
    """Write the changed columns of runs' rows, in the order in which every transaction locks them."""
    ordered = sorted(changed, key=lambda run: run.id)
    moved = (rows.changes_of(rows.row_of(run)) for run in ordered)
    tx.many("update_run", [(*values, number) for number, *values in moved])


def append_all(tx: Transaction, appended: Sequence[tuple[int, Sequence[Record]]]) -> None:
    """Insert the sealed records of many runs, by number, and store which blobs they refer to."""
    written = [(number, record) for number, records in appended for record in records]
    tx.many("insert_record", [rows.row_of_record(number, record) for number, record in written])
    refer(tx, [(digest, number) for number, record in written for digest in record.blobs])


def refer(tx: Transaction, pairs: Sequence[tuple[bytes, int]]) -> None:
    """Keep blobs alive for as long as the journals of the runs with those numbers."""
    tx.many("refer_blob", sorted(set(pairs)))
