"""Connections that fall silent: nothing comes back, and nobody says that they are broken.

A box between us and the server (a balancer, a firewall, a machine that was paused) may take what we send,
acknowledge it and pass nothing on. The kernel sees a sound connection, and libpq would wait without end. So
each exchange has a time limit of our own. A slow answer is not a silent connection: when the limit is over,
the server is asked on another connection whether it still works on ours. If it does not, or cannot be asked
for long, the connection is broken off, and who waited on it goes on as if the network had broken it:
what was sent may or may not have been done, and that is found out (see `lines`).
"""

from __future__ import annotations

import os
import socket
import struct
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from time import monotonic
from typing import Any

import psycopg
from psycopg.pq import ExecStatus
from psycopg.pq.abc import PGconn

from ninelives.stores.shared.wakeups import readable

LIMIT_SECONDS = 4.0
"""How long an exchange takes before we ask; well below a lease, which is then renewed in time."""
LONG_LIMIT_SECONDS, POOLED_LIMIT_SECONDS = 15.0, 60.0
"""How long where the server cannot be asked: it is not reached, or a pooler hides which of its own it is."""
_LOOK_SECONDS, _ASK_SECONDS = 1.0, 2
_LAST_DATA_RECEIVED = slice(52, 56)  # in the kernel's struct tcp_info, in milliseconds
_BUSY = (
    "SELECT pid FROM pg_stat_activity"
    " WHERE state = 'active' AND wait_event_type IS DISTINCT FROM 'Client' AND pid IN (%s)"
)


class WatchedConnection(psycopg.Connection[tuple[Any, ...]]):
    """A connection that knows since when it waits for an answer, and that another thread can break off.

    `since` is 0 while nothing is waited for.
    """

    def __init__(self, pgconn: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(pgconn, *args, **kwargs)
        self.since = 0.0
        # A number of our own for the same socket: libpq's may be another file's when we come to use it.
        self._socket: socket.socket | None = socket.socket(fileno=os.dup(pgconn.socket))

    def wait(self, *args: Any, **kwargs: Any) -> Any:
        """Wait for the server, and note since when."""
        self.since = monotonic()
        try:
            return super().wait(*args, **kwargs)
        finally:
            self.since = 0.0

    def close(self) -> None:
        """Close the connection, for us and for the server."""
        super().close()
        self.let_go()

    def let_go(self) -> None:
        """Give up our own number of the socket."""
        own, self._socket = self._socket, None
        if own is not None:
            own.close()

    def heard_seconds(self) -> float | None:
        """Return how long ago anything came from the server; None where the kernel does not say."""
        with suppress(AttributeError, OSError, struct.error):
            told = self._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)  # type: ignore[union-attr]
            return float(struct.unpack("=I", told[_LAST_DATA_RECEIVED])[0]) / 1000
        return None

    def break_off(self) -> None:
        """End the connection under whoever waits on it."""
        with suppress(AttributeError, OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # type: ignore[union-attr]


class Vigil:
    """Looks every second, in a thread of its own, at the connections of one store object."""

    def __init__(
        self, url: str, *, is_pooled: bool, connections: Callable[[], Iterable[WatchedConnection]]
    ) -> None:
        self._url, self._is_pooled, self._connections = url, is_pooled, connections
        self._is_over = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        """Begin to look, unless it has begun."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="ninelives-silence", daemon=True)
            self._thread.start()

    def end(self) -> None:
        """Look no more."""
        self._is_over.set()

    def _run(self) -> None:
        while not self._is_over.wait(min(_LOOK_SECONDS, LIMIT_SECONDS / 4)):
            waiting = {one: one.since for one in self._connections() if one.since}
            late = {one: seconds for one in waiting if (seconds := _silent_seconds(one)) > LIMIT_SECONDS}
            for one in self._silent(late):
                if one.since == waiting[one]:
                    one.break_off()

    def _silent(self, late: Mapping[WatchedConnection, float]) -> list[WatchedConnection]:
        if self._is_pooled:
            return [one for one, seconds in late.items() if seconds > POOLED_LIMIT_SECONDS]
        busy = self._busy(list(late)) if late else set()
        if busy is None:
            return [one for one, seconds in late.items() if seconds > LONG_LIMIT_SECONDS]
        return [one for one in late if one.pgconn.backend_pid not in busy]

    def _busy(self, late: Sequence[WatchedConnection]) -> set[int] | None:
        """Ask the server on whose questions it works; None when it does not say."""
        try:
            given = psycopg.conninfo.conninfo_to_dict(self._url)
            where = {"host": late[0].info.host, "port": late[0].info.port, "connect_timeout": _ASK_SECONDS}
            options: Any = given | where
            numbers = ", ".join(str(one.pgconn.backend_pid) for one in late)
            with closing(psycopg.connect(**options, autocommit=True)) as other:
                return _asked(other.pgconn, (_BUSY % numbers).encode())
        except (psycopg.Error, OSError):
            return None


def _silent_seconds(connection: WatchedConnection) -> float:
    """Return for how long nothing has come that is waited for; a long answer comes in parts."""
    since = connection.since
    waited, heard = monotonic() - since if since else 0.0, connection.heard_seconds()
    return waited if heard is None else min(waited, heard)


def _asked(libpq: PGconn, question: bytes) -> set[int] | None:
    libpq.send_query(question)
    libpq.flush()
    deadline = monotonic() + _ASK_SECONDS
    while libpq.is_busy():
        if not readable([libpq.socket], max(0.0, deadline - monotonic())):
            return None
        libpq.consume_input()
    answer = libpq.get_result()
    if answer is None or answer.status != ExecStatus.TUPLES_OK:
        return None
    return {int(answer.get_value(row, 0) or 0) for row in range(answer.ntuples)}
