"""The connections to the server: a small pool; each transaction takes one and gives it back.

A connection that breaks is discarded, and its transaction is run again on a new one, unless it was written.
Before the script was sent, it cannot be. After that we must check. A write first stores its connection's
counter. The check reads that counter and closes it, so that a write that is still on its way is refused when
it arrives. If the server cannot be reached for that check, `StoreBroken`: the process must end and read its
state again. See docs/decisions/0012.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from ninelives.core.clock import Clock
from ninelives.core.errors import NineLivesError, StoreBroken, StoreUnavailable
from ninelives.core.rules import validation
from ninelives.stores.redis.server.address import Address
from ninelives.stores.redis.server.connection import Command, ConnectionLost, ServerConnection
from ninelives.stores.redis.server.key_names import Names
from ninelives.stores.redis.server.lost_writes import Lineage
from ninelives.stores.redis.server.scripts import script
from ninelives.stores.redis.server.server_checks import REPLICAS_REMEDY, Server, check
from ninelives.stores.redis.transaction import Conflict, Transaction
from ninelives.stores.shared.pool import ConnectionPool

Answer = TypeVar("Answer")
Work = Callable[[Transaction], Answer]
_TRIES, _MOST_CONFLICTS, _WAIT_MS = 20, 400, 2_000
_LONGEST_PAUSE_SECONDS = 0.05
_HELD_UP = "a step waits for the server%s to sync writes that must survive: %s; it gives up after %d s"
_log = logging.getLogger("ninelives.store")


class Pool(ConnectionPool[ServerConnection]):
    """All connections of one store object."""

    def __init__(self, address: Address, clock: Clock | None) -> None:
        super().__init__(clock)
        self.address = address
        self.names = Names(address.prefix)
        self.lineage = Lineage()
        self.server = Server()
        self._visiting = threading.Lock()

    def connect(self) -> ServerConnection:
        """Open a connection outside the pool. Raises StoreUnavailable, StoreUnsafe.

        What the server reports counts from now on: it may have been restarted with other settings.
        """
        connection = ServerConnection(self.address)
        try:
            with self._visiting:  # one at a time, so that the newest report is kept
                self.server = check(connection, self.address)
                self._visit(connection, self.server.history)
        except ConnectionLost as error:
            raise StoreUnavailable("Redis: the server closes connections at once") from error
        except BaseException:
            connection.close()
            raise
        return connection

    def _visit(self, connection: ServerConnection, history: str) -> None:
        """Check whether the server still has everything acknowledged here; if not, mark what may be lost."""
        names, lineage = self.names, self.lineage
        connection.history = history
        keys = [names.store, names.lineage, names.workers, names.awaited]
        written, began = connection.call(script("takeover"), keys, [history, lineage.history])
        is_new = lineage.history not in ("", history)
        if is_new and lineage.is_broken(began):
            self._mark(connection, began)
        lineage.renew(history, written)
        if is_new and lineage.sessions:
            connection.call(script("arrive"), [names.awaited, names.work], sorted(lineage.sessions))

    def _mark(self, connection: ServerConnection, began: int) -> None:
        for _ in range(_TRIES):
            tx = Transaction(connection, self.names, self._clock, self.leases)
            self.lineage.mark(tx, began)
            # CRASH: we died before marking; what only this process knew is lost with it.
            if not tx.is_changed or tx.apply()[0] == b"done":
                return
        raise StoreUnavailable("the transaction keeps conflicting with others")

    def begin(self) -> None:
        """Open the first connection. Never waits for the server: raises StoreUnavailable at once."""
        self._idle.append(self.connect())

    def _connected(self) -> ServerConnection:
        return self.connect()

    def read(self, work: Work[Answer]) -> Answer:
        """Run something that only reads, or that may safely be repeated."""
        for _ in range(_TRIES):
            with self._borrowed() as connection:
                try:
                    return work(Transaction(connection, self.names, self._clock, self.leases))
                except (ConnectionLost, Conflict):
                    continue
        raise StoreUnavailable("connections to the server break at once")

    def append(self, keys: Sequence[bytes], values: Sequence[bytes | str | int]) -> Any:
        """Append to journals. Repeating it is safe: the second time finds no matching fence."""
        for _ in range(_TRIES):
            with self._borrowed() as connection:
                try:
                    answer = connection.call(script("append"), keys, values)
                except ConnectionLost:
                    continue
                if answer[0] != b"version":
                    self.lineage.acknowledge(connection.history, answer[0])
                return answer
        raise StoreUnavailable("connections to the server break at once")

    def write(self, work: Work[Answer]) -> Answer:
        """Run a writing transaction; durable when this returns."""
        return self._guarded(lambda: self._write(work))

    def require_same(self, known: bytes | None = None) -> None:
        """Raise StoreBroken if the store that was opened, or the one with that id, no longer exists."""
        (found,) = self.read(lambda tx: tx.ask([(b"HGET", tx.names.store, b"id")]))
        if (self.names.identity if known is None else known) not in (b"", found):
            what = "it was emptied" if found is None else "another store has replaced it"
            self._failure = validation.vanished(what)
            raise self._failure

    def _write(self, work: Work[Answer]) -> Answer:
        for conflicts in range(_MOST_CONFLICTS):
            with self._borrowed() as connection:
                tx = Transaction(connection, self.names, self._clock, self.leases)
                try:
                    answer = work(tx)
                    if not tx.is_changed:
                        return answer
                except (ConnectionLost, Conflict):
                    _pause(conflicts)
                    continue
                try:
                    what, written = tx.apply()
                    self.lineage.acknowledge(connection.history, written)
                except ConnectionLost:
                    # CRASH: the connection broke after the script was sent; we check its fate below.
                    what = b""
            if what == b"done" or (not what and self._has_happened(connection)):
                return answer
            _pause(conflicts)
        raise StoreUnavailable("the transaction keeps conflicting with others")

    def confirmed(self) -> bool:
        """Wait until everything written so far is synced, here and on the required number of replicas.

        False when the connection broke meanwhile: the server may have lost it. Raises StoreBroken.
        """
        replicas, deadline = self.address.replicas, time.monotonic() + self.doubt_seconds
        others = f" and {replicas} replica{'s' * (replicas != 1)}" if replicas else ""
        is_logged = False
        commands: list[Command] = [
            (b"HINCRBY", self.names.store, b"confirmed", 1),
            (b"WAITAOF", 1, replicas, _WAIT_MS),
        ]
        with self._borrowed() as connection:
            while True:
                try:
                    _, answer = connection.ask(commands)
                except ConnectionLost:
                    return False
                if isinstance(answer, list) and answer[0] >= 1 and answer[1] >= replicas:
                    return True
                if time.monotonic() >= deadline:
                    break
                if not is_logged:
                    _log.warning(_HELD_UP, others, _synced(answer, replicas), self.doubt_seconds)
                    is_logged = True
        remedy = f"{REPLICAS_REMEDY}; then" if replicas else "Fix the server's disk; then"
        self._failure = StoreBroken(
            f"writes are not known to be synced by the server{others}: {_synced(answer, replicas)}",
            remedy=f"{remedy} start this process again",
        )
        raise self._failure

    def _has_happened(self, connection: ServerConnection) -> bool:
        """Return whether the last write of a broken connection was made; if not, it never will be.

        Raises StoreBroken.
        """
        values = (connection.name, connection.count)
        answer = self._settled(
            lambda: self.read(lambda tx: tx.call("fate", [tx.names.writers], values)), "write"
        )
        return bool(answer)

    @contextmanager
    def _borrowed(self) -> Iterator[ServerConnection]:
        self.require()
        connection = self._take()
        try:
            yield connection
        except NineLivesError:
            raise  # an ordinary answer: the connection is still usable
        except BaseException:
            connection.close()  # an answer may still be outstanding
            raise
        finally:
            self._give_back(connection)


def _synced(answer: object, replicas: int) -> str:
    """Return the result of a WAITAOF as text."""
    if not isinstance(answer, list):
        return str(answer)
    here = "the server has" if answer[0] else "the server has not"
    return f"{here}, and {answer[1]} of {replicas} replicas" if replicas else here


def _pause(conflicts: int) -> None:
    if conflicts:
        time.sleep(random.random() * min(_LONGEST_PAUSE_SECONDS, 0.0005 * 2 ** min(conflicts, 10)))
