"""A TCP proxy between a store and its server, which can lose answers and counts who speaks when."""

from __future__ import annotations

import ctypes
import socket
import threading
from contextlib import suppress
from typing import Self


class Proxy:
    """Passes bytes on, until it is told to cut connections off in the middle of an answer."""

    def __init__(self, port: int, host: str = "127.0.0.1") -> None:
        self._target = ("127.0.0.1", port)
        self._listener = socket.create_server((host, 0))
        self.port: int = self._listener.getsockname()[1]
        self._cut_at: int | None = None
        self._resets = False
        self.cuts = 0
        self.round_trips = 0
        self.accepted = 0
        self._sockets: list[socket.socket] = []
        self._silences: list[threading.Event] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def lose_answer(self, nth: int) -> None:
        """Pass the n-th request from now on to the server, and hang up when it has answered."""
        self._cut_at = self.round_trips + nth

    def reset_in_answer(self) -> None:
        """Give half of the next answer, and then a reset."""
        self._resets = True

    def cut(self) -> None:
        """Break all connections that there are; new ones work."""
        broken, self._sockets = self._sockets, []
        for one in broken:
            _hang_up(one)

    def fall_silent(self) -> None:
        """Take what comes on the connections that there are and pass nothing on; new ones work."""
        for silent in self._silences:
            silent.set()

    def stop(self) -> None:
        """Close everything."""
        _hang_up(self._listener)
        self.cut()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self.accepted += 1
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        try:
            server = socket.create_connection(self._target)
        except OSError:
            client.close()
            return
        for one in (client, server):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sockets += [client, server]
        doomed, answered, silent = threading.Event(), threading.Event(), threading.Event()
        answered.set()
        self._silences.append(silent)
        others = (server, client, doomed, answered, silent)
        threading.Thread(target=self._answers, args=others, daemon=True).start()
        with suppress(OSError):
            while data := client.recv(1 << 20):
                if silent.is_set():
                    continue
                if answered.is_set():
                    answered.clear()
                    self.round_trips += 1
                if self.round_trips == self._cut_at:
                    self._cut_at = None
                    doomed.set()
                server.sendall(data)
        _hang_up(server)
        _hang_up(client)

    def _answers(
        self,
        server: socket.socket,
        client: socket.socket,
        doomed: threading.Event,
        answered: threading.Event,
        silent: threading.Event,
    ) -> None:
        with suppress(OSError):
            while data := server.recv(1 << 20):
                if silent.is_set():
                    continue
                if doomed.is_set():
                    # The server has done it, whole; the client will never know.
                    self.cuts += 1
                    _hang_up(client)
                    return
                if self._resets:
                    self._resets = False
                    self.cuts += 1
                    client.sendall(data[: len(data) // 2])
                    _reset(client)
                    return
                answered.set()
                client.sendall(data)
        _hang_up(client)


def _reset(one: socket.socket) -> None:
    """Break a connection in which another thread may be reading: to connect to nothing does."""
    ctypes.CDLL(None).connect(one.fileno(), bytes(16), 16)
    _hang_up(one)


def _hang_up(one: socket.socket) -> None:
    with suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    with suppress(OSError):
        one.close()
