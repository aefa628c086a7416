"""Network namespaces as hosts: each has links of its own to the store's host, which can be cut.

No program is needed, only root and the kernel: links are made by netlink. A host is a thread of this process
and what is started in it, so nothing is left of the hosts when the process is gone, however it goes.
A link is cut in one direction by giving its sender a wrong hardware address for the other end: what it sends
vanishes without a word, and comes through again when that is taken back.
"""

from __future__ import annotations

import ctypes
import os
import socket
import struct
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Literal, Self, TypeVar

T = TypeVar("T")
Way = Literal["both", "in", "out"]
"""Which way is cut, as the worker's host sees it."""

_LIBC = ctypes.CDLL(None, use_errno=True)
_CLONE_NEWNET = 0x40000000
_NEWLINK, _NEWADDR, _NEWNEIGH, _DELNEIGH = 16, 20, 28, 29
_REQUEST, _ACK, _REPLACE, _CREATE = 1, 4, 0x100, 0x400
_UP, _PERMANENT = 1, 0x80
_NOWHERE = bytes.fromhex("02dead00beef")


def leave_network() -> None:
    """Give this thread, and what it starts, a network of its own, with a loopback. Raises OSError."""
    if _LIBC.unshare(_CLONE_NEWNET) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"no network namespace can be made: {os.strerror(number)}")
    _set_up("lo")


class Host:
    """A worker's host, with one link to the network of who made it."""

    def __init__(self, number: int) -> None:
        self.near, self.far = f"10.77.{number}.1", f"10.77.{number}.2"
        self._link = f"host{number}"
        self._thread = ThreadPoolExecutor(1, initializer=leave_network)
        there = self.run(lambda: os.open(f"/proc/self/task/{threading.get_native_id()}/ns/net", os.O_RDONLY))
        try:
            _make_link(self._link, there)
        finally:
            os.close(there)
        _give_address(self._link, self.near)
        _set_up(self._link)
        self.run(lambda: _give_address("eth0", self.far))
        self.run(lambda: _set_up("eth0"))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.shutdown()

    def run(self, work: Callable[[], T]) -> T:
        """Do something on this host; the processes that it starts live there."""
        return self._thread.submit(work).result()

    def cut(self, way: Way) -> None:
        """Lose what is sent from now on: by this host, to it, or both."""
        if way in ("both", "out"):
            self.run(lambda: _mislead("eth0", self.near))
        if way in ("both", "in"):
            _mislead(self._link, self.far)

    def mend(self, way: Way) -> None:
        """Take a cut back."""
        if way in ("both", "out"):
            self.run(lambda: _forget("eth0", self.near))
        if way in ("both", "in"):
            _forget(self._link, self.far)


def _make_link(name: str, there: int) -> None:
    peer = _link(0) + _part(3, b"eth0\0") + _part(28, struct.pack("=I", there))
    info = _part(1, b"veth\0") + _part(2, _part(1, peer))
    _ask(_NEWLINK, _CREATE, _link(0) + _part(3, name.encode() + b"\0") + _part(18, info))


def _set_up(name: str) -> None:
    _ask(_NEWLINK, 0, _link(socket.if_nametoindex(name), _UP))


def _give_address(name: str, address: str) -> None:
    number = socket.inet_aton(address)
    head = struct.pack("=BBBBI", socket.AF_INET, 24, 0, 0, socket.if_nametoindex(name))
    _ask(_NEWADDR, _CREATE, head + _part(2, number) + _part(1, number))


def _mislead(name: str, address: str) -> None:
    head = struct.pack("=BBHiHBB", socket.AF_INET, 0, 0, socket.if_nametoindex(name), _PERMANENT, 0, 0)
    body = head + _part(1, socket.inet_aton(address)) + _part(2, _NOWHERE)
    _ask(_NEWNEIGH, _CREATE | _REPLACE, body)


def _forget(name: str, address: str) -> None:
    head = struct.pack("=BBHiHBB", socket.AF_INET, 0, 0, socket.if_nametoindex(name), 0, 0, 0)
    _ask(_DELNEIGH, 0, head + _part(1, socket.inet_aton(address)))


def _link(index: int, flags: int = 0) -> bytes:
    return struct.pack("=BBHiII", socket.AF_UNSPEC, 0, 0, index, flags, flags)


def _part(kind: int, body: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(body), kind) + body + bytes(-len(body) % 4)


def _ask(kind: int, flags: int, body: bytes) -> None:
    """Ask the kernel, about this thread's network. Raises OSError."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as asked:
        head = struct.pack("=IHHII", 16 + len(body), kind, _REQUEST | _ACK | flags, 1, 0)
        asked.send(head + body)
        (number,) = struct.unpack_from("=i", asked.recv(65536), 16)
    if number:
        raise OSError(-number, f"netlink {kind}: {os.strerror(-number)}")
