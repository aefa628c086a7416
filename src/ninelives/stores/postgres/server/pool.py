"""The connections to the server: a small pool; each transaction takes one and gives it back.

A connection that breaks is discarded, and its transaction is run again on a new one, unless it was committed.
Before COMMIT was sent, it cannot be: the server rolls back what a lost client began. After that we must
check. A writing transaction first increments the counter in its connection's row (`writers`). Reading that
row waits until the old transaction is over, one way or the other. If the server cannot be reached for that
check, `StoreBroken`: the process must end and read its state again. See docs/decisions/0010.
"""

from __future__ import annotations

import ctypes
import os
import struct
import weakref
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from typing import TypeVar

import psycopg
from psycopg import errors as driver

from ninelives.core.clock import Clock
from ninelives.core.errors import BadRecord, SchemaMismatch, StoreError, StoreUnavailable
from ninelives.core.rules import validation
from ninelives.stores.postgres.server.address import Address
from ninelives.stores.postgres.server.connection import ServerConnection
from ninelives.stores.postgres.server.open_connection import PASSING, Connection, connect, translate
from ninelives.stores.postgres.server.queries import Values, migrations, statements
from ninelives.stores.postgres.server.silence import Vigil
from ninelives.stores.postgres.transaction import Transaction
from ninelives.stores.shared import rows
from ninelives.stores.shared.pool import ConnectionPool

Answer = TypeVar("Answer")
Work = Callable[[Transaction], Answer]
Before = Callable[[Transaction], None]
# Conflicts pass by themselves; a transaction that lost so often meets something that does not.
_TRIES = 20
_UNKEEPABLE = (UnicodeEncodeError, struct.error)


class Pool(ConnectionPool[ServerConnection]):
    """All connections of one store object."""

    def __init__(self, address: Address, clock: Clock | None) -> None:
        super().__init__(clock)
        self.address = address
        self.sql = statements(address.schema)
        self.risks: dict[str, str] = {}
        self.identity = ""
        self._connections: weakref.WeakSet[Connection] = weakref.WeakSet()
        self._vigil = Vigil(address.libpq, is_pooled=address.is_pooled, connections=self._watched)

    @property
    def is_direct(self) -> bool:
        """Whether there are connections, past any pooler, that keep locks and receive notifications."""
        return self.address.direct is not None

    def connect(self, *, is_direct: bool = True) -> Connection:
        """Open a connection outside the pool, which `close` does not wait for.

        Raises StoreUnavailable, StoreUnsafe.
        """
        connection, self.risks = connect(self.address, is_direct=is_direct, watch=self._watch)
        return connection

    def _watch(self, connection: Connection) -> None:
        with self._lock:
            self._connections.add(connection)
            self._vigil.begin()

    def _watched(self) -> list[Connection]:
        with self._lock:
            return list(self._connections)

    def prepare(self, work: Callable[[Connection, Address], Answer]) -> Answer:
        """Run something first, on what becomes the first pooled connection. Never waits for the server."""
        server = self._connected()
        try:
            answer = work(server.connection, self.address)
        except BaseException:
            server.close()
            raise
        self._idle.append(server)
        return answer

    def _connected(self) -> ServerConnection:
        return ServerConnection(self.connect(is_direct=False), is_pooled=self.address.is_pooled)

    def read(self, work: Work[Answer]) -> Answer:
        """Run a reading transaction: one consistent view."""
        return self._guarded(lambda: self._read(work))

    def _read(self, work: Work[Answer]) -> Answer:
        for _ in range(_TRIES):
            with self._begun() as (server, tx):
                server.enter_pipeline()
                tx.begin(None)
                answer = work(tx)
                tx.ask("end")
                server.leave_pipeline()
                return answer
        raise StoreUnavailable("connections to the server break at once")

    def ask(
        self, name: str, values: Values = (), *, after: tuple[str, Values] | None = None
    ) -> list[rows.Row]:
        """Run one statement that is a transaction by itself, and that may safely be repeated.

        With `after`, that statement belongs to the same transaction, and is done before.
        """
        statement = self.sql[name]
        for _ in range(_TRIES):
            self.require()
            server = self._take()  # the hot path: `_begun` without its generator
            try:
                if after is not None:
                    return server.ask_after(self.sql[after[0]], after[1], statement, values)
                return server.ask(statement, values)
            except PASSING:
                continue
            except _UNKEEPABLE as error:
                raise _refusal(error) from error
            except psycopg.Error as error:
                if not server.is_lost:
                    raise self._translated(error) from error
            finally:
                self._give_back(server)
        raise StoreUnavailable("the transaction keeps conflicting with others")

    def write(self, work: Work[Answer], finish: Before | None = None) -> Answer:
        """Run a writing transaction; durable when this returns. `finish` runs last, if it wrote anything."""
        return self._guarded(lambda: self._write(work, finish))

    def _write(self, work: Work[Answer], finish: Before | None) -> Answer:
        for _ in range(_TRIES):
            answers: list[Answer] = []
            with self._begun() as (server, tx):
                try:
                    self._transact(server, tx, work, finish, answers)
                except PASSING:
                    self._roll_back(server)
                    continue
                return answers[0]
            # CRASH: the connection broke. Before COMMIT was sent nothing was written; after it, we check.
            if answers and self._has_happened(server.name, tx.count):
                return answers[0]
        raise StoreUnavailable("the transaction keeps conflicting with others")

    def _transact(
        self,
        server: ServerConnection,
        tx: Transaction,
        work: Work[Answer],
        finish: Before | None,
        answers: list[Answer],
    ) -> None:
        server.enter_pipeline()
        tx.begin(server.name)
        answer = work(tx)
        # The count must be known before COMMIT is sent: without it, a lost answer could not be resolved.
        tx.note_count()
        # In the same transaction as the work: a schema that was dropped and made again must not get our rows.
        if self.identity not in ("", tx.identity):
            raise validation.vanished("another store has replaced it")
        if tx.version != len(migrations()):
            raise SchemaMismatch(
                "another process has migrated the store to another schema version",
                remedy="End this process and start it with the new version of ninelives",
            )
        if tx.is_changed and finish is not None:
            finish(tx)
        # Before COMMIT goes out: from here on the transaction may be durable, whatever we read of it.
        answers.append(answer)
        # Nothing was changed but the writer's count: rolled back, it costs no sync.
        tx.ask("end" if tx.is_changed else "undo")
        server.leave_pipeline()

    @contextmanager
    def _begun(self) -> Iterator[tuple[ServerConnection, Transaction]]:
        """Yield a connection for one transaction; after an error, roll it back.

        If the connection is lost meanwhile, the block ends without an error.
        """
        self.require()
        server = self._take()
        try:
            yield server, Transaction(server, self.sql, self._clock, self.leases)
        except BaseException as error:
            self._roll_back(server)
            if isinstance(error, _UNKEEPABLE):
                raise _refusal(error) from error
            if not isinstance(error, psycopg.Error):
                raise
            if not server.is_lost:
                raise self._translated(error) from error
        finally:
            self._give_back(server)

    def _roll_back(self, server: ServerConnection) -> None:
        server.abandon(self.sql["undo"])

    def _translated(self, error: psycopg.Error) -> StoreError:
        """Return our error for one of the driver's; missing tables mean that the store was dropped."""
        if isinstance(error, driver.UndefinedTable | driver.InvalidSchemaName):
            self.require_same()
        return translate(error)

    def require_same(self) -> None:
        """Raise StoreBroken if the store that was opened no longer exists."""
        if not self.identity:
            return
        found: str | None = None
        try:
            with closing(self.connect(is_direct=False)) as apart:  # the caller may hold the last pooled one
                row = apart.execute(self.sql["find_store"].text, (self.address.schema,)).fetchone()
                if row is not None and row[0]:
                    row = apart.execute(self.sql["read_identity"].text).fetchone()
                    found = row[0] if row is not None else None
        except (psycopg.Error, StoreError):
            return  # then it is unknown
        if found != self.identity:
            what = "it was dropped" if found is None else "another store has replaced it"
            self._failure = validation.vanished(what)
            raise self._failure

    def _has_happened(self, writer: str, count: int) -> bool:
        """Return whether the last transaction of a broken connection was committed. Raises StoreBroken."""
        found = self._settled(lambda: self.ask("settle_writer", (writer,)), "COMMIT")
        return bool(found[0][0] == count)

    def close(self) -> None:
        """Close the idle connections now, and the others when they are given back."""
        super().close()
        if self.is_ours:
            self._vigil.end()

    def disown(self) -> None:
        """In a forked child: close the sockets, which belong to the parent, without notifying the server.

        A child that kept them open would keep its dead parent's session alive.
        """
        for connection in list(self._connections):
            if not connection.closed:
                with suppress(OSError, psycopg.Error):
                    os.close(connection.fileno())
            connection.let_go()
            # Never finalised in the child: closing it there would speak to the server in the parent's name.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))


def _refusal(error: Exception) -> BadRecord:
    return BadRecord(f"PostgreSQL cannot keep a value: {error}")
