"""A transaction pooler like PgBouncer: each transaction of a client gets another connection to the server.

What a client leaves on one (settings, prepared statements, locks, LISTEN) is somebody else's in its next
transaction. It speaks just enough of the protocol: no TLS, no passwords, no COPY, no cancelling.
"""

from __future__ import annotations

import queue
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Self

_ENDS_A_REQUEST = (b"S", b"Q")
_VERSION = 3 << 16
_HELLO = b"user\0postgres\0database\0postgres\0client_encoding\0UTF8\0\0"


class Pooler:
    """Listens on a port of its own, before the server at another."""

    def __init__(self, port: int, size: int = 3) -> None:
        self._idle: queue.Queue[_Backend] = queue.Queue()
        self._backends = [_Backend(port, self._idle) for _ in range(size)]
        self._clients: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for one in (self._listener, *self._clients, *(backend.socket for backend in self._backends)):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    @property
    def transactions(self) -> list[int]:
        """Return how many transactions each connection to the server has had."""
        return [one.transactions for one in self._backends]

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._clients.append(client)
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with suppress(OSError, EOFError):
            while _startup(client) != _VERSION:
                client.sendall(b"N")  # neither TLS nor Kerberos
            client.sendall(self._backends[0].greeting)
            backend: _Backend | None = None
            for kind, message in _messages(client):
                if kind == b"X":
                    break
                if backend is None or not backend.send(client, kind, message):
                    backend = self._idle.get()
                    backend.begin(client, kind, message)
        client.close()


class _Backend:
    """A connection to the server, lent to a client for a transaction."""

    def __init__(self, port: int, idle: queue.Queue[_Backend]) -> None:
        self.transactions = 0
        self.greeting = b""
        self._idle, self._turn = idle, threading.Lock()
        self._client: socket.socket | None = None
        self._unanswered, self._is_within = 0, False
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.sendall(struct.pack("!ii", 8 + len(_HELLO), _VERSION) + _HELLO)
        self._answers = _messages(self.socket)
        for kind, message in self._answers:
            self.greeting += message
            if kind == b"Z":
                break
        idle.put(self)
        threading.Thread(target=self._pass_on, daemon=True).start()

    def begin(self, client: socket.socket, kind: bytes, message: bytes) -> None:
        """Begin a transaction of a client."""
        self.transactions += 1
        self._client = client
        assert self.send(client, kind, message)

    def send(self, client: socket.socket, kind: bytes, message: bytes) -> bool:
        """Send on what a client says; False if it has another's ear by now."""
        with self._turn:
            if self._client is not client:
                return False
            self._is_within = kind not in _ENDS_A_REQUEST
            self._unanswered += not self._is_within
            self.socket.sendall(message)
            return True

    def _pass_on(self) -> None:
        with suppress(OSError, EOFError):
            for kind, message in self._answers:
                with self._turn:
                    assert self._client is not None
                    self._unanswered -= kind == b"Z"
                    is_over = (kind, message[5:]) == (b"Z", b"I") and not (
                        self._unanswered or self._is_within
                    )
                    client, self._client = self._client, None if is_over else self._client
                if is_over:
                    self._idle.put(self)
                with suppress(OSError):
                    client.sendall(message)


def _startup(client: socket.socket) -> int:
    length, version = struct.unpack("!ii", _read(client, 8))
    _read(client, length - 8)
    return int(version)


def _messages(one: socket.socket) -> Iterator[tuple[bytes, bytes]]:
    while True:
        head = _read(one, 5)
        (length,) = struct.unpack("!i", head[1:])
        yield head[:1], head + _read(one, length - 4)


def _read(one: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = one.recv(size - len(data))
        if not piece:
            raise EOFError
        data += piece
    return data
