"""What an open store is to its process, and a small pool of connections to a server.

Everything that a store has open belongs to the process that opened it: a forked child may not use it, and
closes what would keep its dead parent's locks alive.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from ninelives.core.clock import Clock
from ninelives.core.errors import LeaseLost, StoreBroken, StoreError, StoreUnavailable, StoreUnsafe
from ninelives.stores.clock import SystemClock
from ninelives.stores.shared.sessions import ObservedLeases

_MOST_CONNECTIONS = 6
_PATIENCE_SECONDS, _DOUBT_SECONDS, _PAUSE_SECONDS = 5.0, 60.0, 0.05
Answer = TypeVar("Answer")


class Opened:
    """What this process has open of a store, until it is closed or broken."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._is_closed = False
        self._failure: StoreError | None = None

    @property
    def is_ours(self) -> bool:
        """Whether this process opened it."""
        return self._pid == os.getpid()

    def require(self) -> None:
        """Check that this process may use it.

        Raises StoreUnsafe in a forked child; StoreBroken if this process must not continue.
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

    def disown(self) -> None:
        """In a forked child: close what belongs to the parent, without acting on it."""


class PooledConnection(Protocol):
    """A connection to the server."""

    @property
    def is_idle(self) -> bool:
        """Whether nothing is under way, so that it can be used again."""

    @property
    def is_lost(self) -> bool:
        """Whether it can no longer be used."""

    def close(self) -> None:
        """Close it."""


Connection = TypeVar("Connection", bound=PooledConnection)


class ConnectionPool(Opened, ABC, Generic[Connection]):
    """All connections of one store object: each transaction takes one and gives it back."""

    def __init__(self, clock: Clock | None) -> None:
        super().__init__()
        self._clock = clock
        self.leases = ObservedLeases(SystemClock().boot_ms if clock is None else None)
        self.doubt_seconds = _DOUBT_SECONDS
        self._idle: list[Connection] = []
        self._taken = self._waiting = 0
        self._lock = threading.Lock()
        self._returned = threading.Condition(self._lock)
        OPEN.add(self)

    @abstractmethod
    def _connected(self) -> Connection:
        """Open a connection for the pool. Raises StoreUnavailable, StoreUnsafe."""

    @abstractmethod
    def require_same(self) -> None:
        """Raise StoreBroken if the store that was opened no longer exists."""

    def _guarded(self, call: Callable[[], Answer]) -> Answer:
        """Call something that may lose a lease; remember an error that this process must not survive."""
        try:
            return call()
        except LeaseLost:
            self.require_same()  # if the whole store was removed, no session is known either
            raise
        except StoreBroken as error:
            self._failure = error
            raise

    def _settled(self, ask: Callable[[], Answer], sent: str) -> Answer:
        """Ask the server what became of something that was sent, until it answers.

        Raises StoreBroken when that cannot be found out.
        """
        deadline = time.monotonic() + self.doubt_seconds
        while True:
            try:
                return ask()
            except StoreUnavailable as error:
                if time.monotonic() < deadline and not self._is_closed:
                    continue
                self._failure = StoreBroken(
                    f"the answer to a {sent} was lost and the server cannot be reached: {error.what}",
                    remedy="End this process and start it again when the server can be reached",
                )
                raise self._failure from error

    def _take(self) -> Connection:
        with self._lock:
            while self._taken >= _MOST_CONNECTIONS:
                self._wait(None)
            self._taken += 1
            if self._idle:
                return self._idle.pop()
        try:
            return self._opened()
        except BaseException:
            with self._lock:
                self._free_one()
            raise

    def _opened(self) -> Connection:
        """Return a new connection, or one given back meanwhile if the server has no room for another."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while True:
            try:
                return self._connected()
            except StoreUnavailable:
                with self._lock:
                    if not self._idle:
                        self._wait(_PAUSE_SECONDS)
                    if self._idle:
                        return self._idle.pop()
                if time.monotonic() >= deadline or self._is_closed:
                    raise

    def _wait(self, seconds: float | None) -> None:
        self._waiting += 1
        self._returned.wait(seconds)
        self._waiting -= 1

    def _give_back(self, connection: Connection) -> None:
        with self._lock:
            self._free_one()
            if connection.is_idle and not self._is_closed:
                self._idle.append(connection)
                return
            if connection.is_lost:
                # The idle ones are probably lost too: a server that restarts drops them all.
                self._close_idle()
            connection.close()

    def _free_one(self) -> None:
        self._taken -= 1
        if self._waiting:
            self._returned.notify()

    def _close_idle(self) -> None:
        for connection in self._idle:
            connection.close()
        self._idle.clear()

    def close(self) -> None:
        """Close the idle connections now, and the others when they are given back."""
        if self.is_ours:
            with self._lock:
                self._is_closed = True
                self._close_idle()
            OPEN.discard(self)


OPEN: weakref.WeakSet[Opened] = weakref.WeakSet()


def _disown_all() -> None:
    for opened in list(OPEN):
        opened.disown()


os.register_at_fork(after_in_child=_disown_all)
