"""Connections that fall silent: nothing comes back, and no error says that they are broken.

A device between us and the server (a load balancer, a firewall, a paused machine) may acknowledge what we
send and pass nothing on. The kernel sees a sound connection, and libpq would wait without end. So each
exchange has our own time limit. A slow answer is not a silent connection: after the limit, we ask the server
on another connection whether it still works on ours. If it does not, or cannot be asked for long, we break
the connection, and the waiting thread continues as after a network failure: what was sent may or may not have
been done, and the pool finds that out (see pool.py).
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
"""How long an exchange may take before we ask; well below a lease, so that it is renewed in time."""
LONG_LIMIT_SECONDS, POOLED_LIMIT_SECONDS = 15.0, 60.0
"""The limits if the server cannot be asked: it is unreachable, or a pooler hides which backend is ours."""
_POLL_SECONDS, _ASK_SECONDS = 1.0, 2
_LAST_DATA_RECEIVED = slice(52, 56)  # in the kernel's struct tcp_info, in milliseconds
_BUSY = (
    "SELECT pid FROM pg_stat_activity"
    " WHERE state = 'active' AND wait_event_type IS DISTINCT FROM 'Client' AND pid IN (%s)"
)


class WatchedConnection(psycopg.Connection[tuple[Any, ...]]):
    """A connection that records since when it waits for an answer, and that another thread can break.

    `since` is 0 while it does not wait.
    """

    def __init__(self, pgconn: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(pgconn, *args, **kwargs)
        self.since = 0.0
        # Our own descriptor for the same socket: libpq's may be closed and reused when we come to use it.
        self._socket: socket.socket | None = socket.socket(fileno=os.dup(pgconn.socket))

    def wait(self, *args: Any, **kwargs: Any) -> Any:
        """Wait for the server, and record since when."""
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
        """Close our own descriptor of the socket."""
        own, self._socket = self._socket, None
        if own is not None:
            own.close()

    def received_seconds(self) -> float | None:
        """Return how long ago anything came from the server; None if the kernel does not report it."""
        with suppress(AttributeError, OSError, struct.error):
            info = self._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)  # type: ignore[union-attr]
            return float(struct.unpack("=I", info[_LAST_DATA_RECEIVED])[0]) / 1000
        return None

    def break_off(self) -> None:
        """Break the connection under any thread that waits on it."""
        with suppress(AttributeError, OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # type: ignore[union-attr]


class Vigil:
    """A thread that checks the connections of one store object every second."""

    def __init__(
        self, url: str, *, is_pooled: bool, connections: Callable[[], Iterable[WatchedConnection]]
    ) -> None:
        self._url, self._is_pooled, self._connections = url, is_pooled, connections
        self._is_over = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        """Start the thread, unless it runs."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="ninelives-silence", daemon=True)
            self._thread.start()

    def end(self) -> None:
        """Stop the thread."""
        self._is_over.set()

    def _run(self) -> None:
        while not self._is_over.wait(min(_POLL_SECONDS, LIMIT_SECONDS / 4)):
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
        """Ask the server which of these backends are busy; None if it does not answer."""
        try:
            given = psycopg.conninfo.conninfo_to_dict(self._url)
            where = {"host": late[0].info.host, "port": late[0].info.port, "connect_timeout": _ASK_SECONDS}
            options: Any = given | where
            numbers = ", ".join(str(one.pgconn.backend_pid) for one in late)
            with closing(psycopg.connect(**options, autocommit=True)) as other:
                return _query(other.pgconn, (_BUSY % numbers).encode())
        except (psycopg.Error, OSError):
            return None


def _silent_seconds(connection: WatchedConnection) -> float:
    """Return for how long nothing has come that is waited for; a long answer comes in parts."""
    since = connection.since
    waited, received = monotonic() - since if since else 0.0, connection.received_seconds()
    return waited if received is None else min(waited, received)


def _query(libpq: PGconn, question: bytes) -> set[int] | None:
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
