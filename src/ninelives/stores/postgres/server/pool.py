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
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from typing import TypeVar

import psycopg
from psycopg import errors as driver

from ninelives.core.clock import Clock
from ninelives.core.errors import (
    BadRecord,
    LeaseLost,
    SchemaMismatch,
    StoreBroken,
    StoreError,
    StoreUnavailable,
    StoreUnsafe,
)
from ninelives.core.rules import validation
from ninelives.stores.clock import SystemClock
from ninelives.stores.postgres.server.address import Address
from ninelives.stores.postgres.server.connection import ServerConnection
from ninelives.stores.postgres.server.open_connection import PASSING, Connection, connect, is_lost, translate
from ninelives.stores.postgres.server.queries import Values, migrations, statements
from ninelives.stores.postgres.server.silence import Vigil
from ninelives.stores.postgres.transaction import Transaction
from ninelives.stores.shared import rows
from ninelives.stores.shared.lease_witness import LeaseWitness

Answer = TypeVar("Answer")
Work = Callable[[Transaction], Answer]
Before = Callable[[Transaction], None]
_MOST_CONNECTIONS, _TRIES = 6, 20
_PATIENCE_SECONDS, _DOUBT_SECONDS, _PAUSE_SECONDS = 5.0, 60.0, 0.05
_UNKEEPABLE = (UnicodeEncodeError, struct.error)


class Pool:
    """All connections of one store object."""

    def __init__(self, address: Address, clock: Clock | None) -> None:
        self.address = address
        self.sql = statements(address.schema)
        self.risks: dict[str, str] = {}
        self.identity = ""
        self._clock = clock
        self.witness = LeaseWitness(SystemClock().boot_ms if clock is None else None)
        self._pid = os.getpid()
        self._is_closed = False
        self._failure: StoreBroken | None = None
        self._idle: list[ServerConnection] = []
        self._taken = self._waiting = 0
        self._lock = threading.Lock()
        self._returned = threading.Condition(self._lock)
        self._connections: weakref.WeakSet[Connection] = weakref.WeakSet()
        self._vigil = Vigil(address.libpq, is_pooled=address.is_pooled, connections=self._watched)
        _OPEN.add(self)

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
        connection = self.connect(is_direct=False)
        try:
            answer = work(connection, self.address)
        except BaseException:
            connection.close()
            raise
        self._idle.append(self._new(connection))
        return answer

    def require(self) -> None:
        """Check that this process may use the pool.

        Raises StoreUnsafe in a forked child; StoreBroken after a write whose fate could not be found out.
        """
        if self._pid != os.getpid():
            raise StoreUnsafe(
                "this store was opened by the parent process",
                remedy="Open the store again after the fork; connections and locks cannot be shared",
            )
        if self._is_closed:
            raise StoreUnavailable("this store has been closed", remedy="Open it again")
        if self._failure is not None:
            raise self._failure

    def read(self, work: Work[Answer]) -> Answer:
        """Run a reading transaction: one consistent view."""
        for _ in range(_TRIES):
            with self._borrowed() as server:
                tx = Transaction(server, self.sql, self._clock, self.witness)
                try:
                    server.open()
                    tx.begin(None)
                    answer = work(tx)
                    tx.ask("end")
                    server.close()
                except psycopg.Error as error:
                    self._clear(server)
                    if not is_lost(server.connection):
                        raise self._translated(error) from error
                except LeaseLost:
                    self._clear(server)
                    self.require_same()
                    raise
                except BaseException:
                    self._clear(server)
                    raise
                else:
                    return answer
        raise StoreUnavailable("connections to the server break at once")

    def ask(self, name: str, values: Values = ()) -> list[rows.Row]:
        """Run one statement that is a transaction by itself, and that may safely be repeated."""
        statement = self.sql[name]
        for _ in range(_TRIES):
            self.require()
            server = self._take()  # the hot path: `_borrowed` without its generator
            try:
                return server.ask(statement, values)
            except PASSING:
                continue
            except _UNKEEPABLE as error:
                raise _refusal(error) from error
            except psycopg.Error as error:
                if not is_lost(server.connection):
                    raise self._translated(error) from error
            finally:
                self._give_back(server)
        raise StoreUnavailable("the transaction keeps conflicting with others")

    def write(self, work: Work[Answer], finish: Before | None = None) -> Answer:
        """Run a writing transaction; durable when this returns. `finish` runs last, if it wrote anything."""
        try:
            return self._write(work, finish)
        except LeaseLost:
            self.require_same()  # if the whole store was dropped, no session is known either
            raise

    def _write(self, work: Work[Answer], finish: Before | None) -> Answer:
        for _ in range(_TRIES):
            with self._borrowed() as server:
                tx = Transaction(server, self.sql, self._clock, self.witness)
                answers: list[Answer] = []
                try:
                    self._transact(server, tx, work, finish, answers)
                except PASSING:
                    self._clear(server)
                    continue
                except psycopg.Error as error:
                    self._clear(server)
                    if not is_lost(server.connection):
                        raise self._translated(error) from error
                except BaseException:
                    self._clear(server)
                    raise
                else:
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
        server.open()
        tx.begin(server.name)
        answer = work(tx)
        tx.note_count()
        if self.identity not in ("", tx.identity):
            raise self._broken(validation.vanished("another store has replaced it"))
        if tx.version != len(migrations()):
            raise SchemaMismatch(
                "another process has migrated the store to another schema version",
                remedy="End this process and start it with the new version of ninelives",
            )
        if tx.is_changed and finish is not None:
            finish(tx)
        answers.append(answer)
        tx.ask("end" if tx.is_changed else "undo")
        server.close()

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
            raise self._broken(validation.vanished(what))

    def _broken(self, failure: StoreBroken) -> StoreBroken:
        self._failure = failure
        return failure

    def _has_happened(self, writer: str, count: int) -> bool:
        """Return whether the last transaction of a broken connection was committed.

        Raises StoreBroken when that cannot be found out.
        """
        deadline = time.monotonic() + _DOUBT_SECONDS
        while True:
            try:
                found = self.ask("settle_writer", (writer,))
            except StoreUnavailable as error:
                if time.monotonic() < deadline:
                    continue
                self._failure = StoreBroken(
                    f"the answer to a COMMIT was lost and the server cannot be reached: {error.what}",
                    remedy="End this process and start it again when the server can be reached",
                )
                raise self._failure from error
            return bool(found[0][0] == count)

    @contextmanager
    def _borrowed(self) -> Iterator[ServerConnection]:
        self.require()
        server = self._take()
        try:
            yield server
        except _UNKEEPABLE as error:
            raise _refusal(error) from error
        finally:
            self._give_back(server)

    def _take(self) -> ServerConnection:
        with self._lock:
            while self._taken >= _MOST_CONNECTIONS:
                self._waiting += 1
                self._returned.wait()
                self._waiting -= 1
            self._taken += 1
            if self._idle:
                return self._idle.pop()
        try:
            return self._opened()
        except BaseException:
            with self._lock:
                self._free_one()
            raise

    def _opened(self) -> ServerConnection:
        """Return a new connection, or one given back meanwhile if the server has no room for another."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while True:
            try:
                return self._new(self.connect(is_direct=False))
            except StoreUnavailable:
                with self._lock:
                    if not self._idle:
                        self._waiting += 1
                        self._returned.wait(_PAUSE_SECONDS)
                        self._waiting -= 1
                    if self._idle:
                        return self._idle.pop()
                if time.monotonic() >= deadline or self._is_closed:
                    raise

    def _give_back(self, server: ServerConnection) -> None:
        with self._lock:
            self._free_one()
            if server.is_idle and not self._is_closed:
                self._idle.append(server)
                return
            if is_lost(server.connection):
                # The idle ones are probably lost too: a server that restarts drops them all.
                for other in self._idle:
                    other.connection.close()
                self._idle.clear()
            server.connection.close()

    def _free_one(self) -> None:
        self._taken -= 1
        if self._waiting:
            self._returned.notify()

    def _clear(self, server: ServerConnection) -> None:
        server.abandon(self.sql["undo"])

    def _new(self, connection: Connection) -> ServerConnection:
        return ServerConnection(connection, is_pooled=self.address.is_pooled)

    def close(self) -> None:
        """Close the idle connections now, and the others when they are given back."""
        if self._pid != os.getpid():
            return
        with self._lock:
            self._is_closed = True
            for server in self._idle:
                server.connection.close()
            self._idle.clear()
        self._vigil.end()
        _OPEN.discard(self)

    def disown(self) -> None:
        """In a forked child: close the sockets, which belong to the parent, without notifying the server.

        A child that kept them open would keep its dead parent's session alive.
        """
        for connection in list(self._connections):
            if not connection.closed:
                with suppress(OSError, psycopg.Error):
                    os.close(connection.fileno())
            connection.let_go()
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))


def _refusal(error: Exception) -> BadRecord:
    return BadRecord(f"PostgreSQL cannot keep a value: {error}")


_OPEN: weakref.WeakSet[Pool] = weakref.WeakSet()


def _disown_all() -> None:
    for pool in list(_OPEN):
        pool.disown()


os.register_at_fork(after_in_child=_disown_all)
