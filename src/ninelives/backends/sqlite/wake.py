"""Wake-ups between the processes of one database: a Unix datagram to each that listens.

Each store object that waits has a socket in the directory beside the database. Who makes work sends
one byte to all of them after its commit. A full buffer means that the reader has not read what is
there and will wake anyway; a socket that nobody reads belongs to the dead and is removed. Nothing
rests on a datagram: losing one costs a poll interval.
"""

from __future__ import annotations

import os
import select
import socket
import threading
import time
from pathlib import Path

_SUFFIX = ".wake"


class WakeUps:
    """Send wake-ups to all listeners of a directory, and wait for one."""

    def __init__(self, directory: Path, name: str) -> None:
        self._directory = directory
        self._folder = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._name = name + _SUFFIX
        self._sender = _datagram_socket()
        self._receiver: socket.socket | None = None
        self._turn = threading.Condition()
        self._reading = False
        self._generation = 0
        self._is_closed = False
        self._seen = threading.local()

    def send(self) -> None:
        """Wake everybody who waits."""
        for name in os.listdir(self._folder):
            if not name.endswith(_SUFFIX):
                continue
            try:
                self._sender.sendto(b"!", self._address(name))
            except BlockingIOError:
                pass
            except ConnectionRefusedError:
                (self._directory / name).unlink(missing_ok=True)
            except FileNotFoundError:
                pass

    def wait(self, timeout_seconds: float) -> bool:
        """Wait for a wake-up since this thread's last call; its first call returns at once."""
        deadline = time.monotonic() + timeout_seconds
        with self._turn:
            if self._is_closed:
                return False
            if self._receiver is None:
                self._listen()
            while getattr(self._seen, "generation", -1) == self._generation:
                left = deadline - time.monotonic()
                if left <= 0:
                    return False
                if self._reading:
                    self._turn.wait(left)
                else:
                    self._read(left)
                if self._is_closed:
                    return False
            self._seen.generation = self._generation
            return True

    def close(self) -> None:
        """Stop listening; who waits is sent away."""
        with self._turn:
            self._is_closed = True
            if self._reading:
                self._sender.sendto(b"!", self._address(self._name))
                self._turn.wait_for(lambda: not self._reading)
            if self._receiver is not None:
                (self._directory / self._name).unlink(missing_ok=True)
                self._receiver.close()
        self._sender.close()
        os.close(self._folder)

    def _listen(self) -> None:
        self._receiver = _datagram_socket()
        self._receiver.bind(self._address(self._name))

    def _read(self, timeout_seconds: float) -> None:
        """Wait on the socket for all threads, without the lock."""
        assert self._receiver is not None  # noqa: S101 (wait() has bound it)
        self._reading = True
        self._turn.release()
        woken = False
        try:
            woken = bool(select.select([self._receiver], [], [], timeout_seconds)[0])
        finally:
            self._turn.acquire()
            self._reading = False
            if woken:
                self._drain(self._receiver)
                self._generation += 1
            self._turn.notify_all()

    @staticmethod
    def _drain(receiver: socket.socket) -> None:
        try:
            while True:
                receiver.recv(16)
        except BlockingIOError:
            pass

    def _address(self, name: str) -> str:
        # Through the open directory: a socket's whole path may have 107 bytes only.
        return f"/proc/self/fd/{self._folder}/{name}"


def _datagram_socket() -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    made.setblocking(False)
    return made
