"""Wake-ups between the processes of one database: a Unix datagram to each listener.

Each store object that waits has a socket in the directory beside the database. A process that creates work
sends one byte to all of them after its commit. If a listener's buffer is full, it has unread wake-ups and
will wake anyway. A socket without a reader belongs to a dead process and is removed. Correctness never
depends on a datagram: losing one costs a poll interval.
"""

from __future__ import annotations

import os
import select
import socket
import threading
import time
from contextlib import suppress
from pathlib import Path

from ninelives.stores.sqlite.files.death_watch import DeathWatch

WORKERS, READERS = ".wake", ".read"
"""Two kinds of listeners: those that wait for work, and those that read output."""


class WakeUps:
    """Send wake-ups to all listeners of a directory, and wait for one."""

    def __init__(self, directory: Path, name: str, suffix: str = WORKERS) -> None:
        self._directory = directory
        self._folder = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._name = name + suffix
        try:
            self._sender = _datagram_socket()
        except OSError:
            os.close(self._folder)
            raise
        self._receiver: socket.socket | None = None
        self._changed = threading.Condition()
        self._reading = False
        self._generation = 0
        self._is_closed = False
        self._seen = threading.local()
        self._deaths: DeathWatch | None = None
        self._has_died = False

    def take_death(self) -> bool:
        """Return whether a session was seen to die since the last call."""
        died, self._has_died = self._has_died, False
        return died

    def send(self, *, only_readers: bool = False) -> None:
        """Wake all listeners, or only those that read output."""
        wanted = READERS if only_readers else (WORKERS, READERS)
        with suppress(OSError):  # the commit is durable, with or without wake-ups
            for name in os.listdir(self._folder):
                if name.endswith(wanted):
                    self._send_to(name)

    def _send_to(self, name: str) -> None:
        try:
            self._sender.sendto(b"!", self._address(name))
        except ConnectionRefusedError:
            (self._directory / name).unlink(missing_ok=True)
        except OSError:
            pass  # its buffer is full, so it will wake anyway; or it is not our socket

    def wait(self, timeout_seconds: float) -> bool:
        """Wait for a wake-up since this thread's last call; the first call returns at once."""
        deadline = time.monotonic() + timeout_seconds
        with self._changed:
            if self._receiver is None and not self._is_closed:
                self._listen()
            while not self._is_closed:
                if getattr(self._seen, "generation", -1) != self._generation:
                    self._seen.generation = self._generation
                    return True
                left = max(0.0, deadline - time.monotonic())
                if self._reading:
                    self._changed.wait(left)
                else:
                    self._read(left)
                if left == 0.0 and self._seen.generation == self._generation:
                    return False
            return False

    def close(self) -> None:
        """Stop listening; threads that wait return."""
        with self._changed:
            self._is_closed = True
            if self._reading:
                self._send_to(self._name)
                self._changed.wait_for(lambda: not self._reading)
            if self._receiver is not None:
                (self._directory / self._name).unlink(missing_ok=True)
                self._receiver.close()
            if self._deaths is not None:
                self._deaths.close()
        self._sender.close()
        os.close(self._folder)

    def disown(self) -> None:
        """In a forked child: close the sockets, which belong to the parent."""
        if self._receiver is not None:
            self._receiver.close()
        if self._deaths is not None:
            self._deaths.close()
        self._sender.close()
        os.close(self._folder)

    def _listen(self) -> None:
        self._receiver = _datagram_socket()
        self._receiver.bind(self._address(self._name))
        if self._name.endswith(WORKERS):
            self._deaths = DeathWatch(self._directory)

    def _read(self, timeout_seconds: float) -> None:
        """Wait on the socket for all threads, with the lock released."""
        assert self._receiver is not None  # noqa: S101 (wait() has bound it)
        self._reading = True
        self._changed.release()
        woken = False
        try:
            poll = select.poll()
            poll.register(self._receiver, select.POLLIN)
            if self._deaths is not None and self._deaths.fd >= 0:
                poll.register(self._deaths.fd, select.POLLIN)
            ready = {fd for fd, _ in poll.poll(timeout_seconds * 1000)}
            woken = self._receiver.fileno() in ready
            if self._deaths is not None and self._deaths.fd in ready and self._deaths.seen():
                woken = self._has_died = True
        finally:
            self._changed.acquire()
            self._reading = False
            if woken:
                self._drain(self._receiver)
                self._generation += 1
            self._changed.notify_all()

    @staticmethod
    def _drain(receiver: socket.socket) -> None:
        try:
            while True:
                receiver.recv(16)
        except BlockingIOError:
            pass

    def _address(self, name: str) -> str:
        # Through the open directory: a socket's path may have at most 107 bytes.
        return f"/proc/self/fd/{self._folder}/{name}"


def _datagram_socket() -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    made.setblocking(False)
    return made
