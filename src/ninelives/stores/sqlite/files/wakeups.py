"""Wake-ups between the processes of one database: a Unix datagram to each listener.

Each store object that waits has a socket in the directory beside the database. A process that creates work
sends one byte to all of them after its commit. If a listener's buffer is full, it has unread wake-ups and
will wake anyway. A socket without a reader belongs to a dead process and is removed. Correctness never
depends on a datagram: losing one costs a poll interval.
"""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from pathlib import Path

from ninelives.stores.shared.wakeups import WakeUps, readable
from ninelives.stores.sqlite.files.death_watch import DeathWatch

WORKERS, READERS = ".wake", ".read"
"""Two kinds of listeners: those that wait for work, and those that read output."""


class Datagrams(WakeUps[socket.socket]):
    """Send wake-ups to all listeners of a directory, and wait for one."""

    def __init__(self, directory: Path, name: str, suffix: str = WORKERS) -> None:
        super().__init__()
        self._directory = directory
        # Kept open for `_address`: the directory may lie deeper than a socket's path can say.
        self._folder = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._name = name + suffix
        try:
            self._sender = _datagram_socket()
        except OSError:
            os.close(self._folder)
            raise
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
        with self._changed:  # binding never waits: no thread finds another at it
            if self._connection is None and not self._is_closed:
                # Bind before the caller polls for work:
                # a wake-up between its poll and the bind would be lost.
                self._connection = self._listen(0.0)
        return super().wait(timeout_seconds)

    def disown(self) -> None:
        """In a forked child: close the sockets, which belong to the parent."""
        if self._connection is not None:
            self._connection.close()
        self._release()

    def _listen(self, timeout_seconds: float) -> socket.socket:  # noqa: ARG002 (binding never waits)
        receiver = _datagram_socket()
        try:
            receiver.bind(self._address(self._name))
        except OSError:
            receiver.close()
            raise
        # Readers of output take over nothing: they need not wake at a death.
        if self._name.endswith(WORKERS):
            self._deaths = DeathWatch(self._directory)
        return receiver

    def _receive(self, receiver: socket.socket, timeout_seconds: float) -> tuple[socket.socket, bool]:
        deaths = self._deaths
        watched = [receiver.fileno(), *([deaths.fd] if deaths is not None and deaths.fd >= 0 else ())]
        ready = readable(watched, timeout_seconds)
        woken = receiver.fileno() in ready
        if deaths is not None and deaths.fd in ready and deaths.seen():
            woken = self._has_died = True
        if woken:
            with suppress(BlockingIOError):
                while True:
                    # Empty the buffer: ten wake-ups are one reason to poll.
                    receiver.recv(16)
        return receiver, woken

    def _interrupt(self) -> None:
        self._send_to(self._name)

    def _disconnect(self, receiver: socket.socket) -> None:
        (self._directory / self._name).unlink(missing_ok=True)
        receiver.close()

    def _release(self) -> None:
        if self._deaths is not None:
            self._deaths.close()
        self._sender.close()
        os.close(self._folder)

    def _address(self, name: str) -> str:
        # Through the open directory: a socket's path may have at most 107 bytes.
        return f"/proc/self/fd/{self._folder}/{name}"


def _datagram_socket() -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    made.setblocking(False)
    return made
