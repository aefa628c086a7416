"""The ledger of a fleet: one append-only file outside the store, which the judge believes.

Each entry is one line and one write, made before what it announces (BEGIN) or after what it tells
(EFFECT, TOLD, COMMITTED). A kill between a truth and its line leaves one truth unchecked; no untruth is
ever written.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path

import msgspec
from msgspec import Struct


class Fact(StrEnum):
    """What a line says."""

    STARTED = "started"  # the driver was told that `run` is durable
    CLAIMED = "claimed"  # a worker was given `run` at `epoch`, with `length` records
    BEGIN = "begin"  # the body of `run`'s `step` begins
    EFFECT = "effect"  # `run`'s `step` has touched the world
    TOLD = "told"  # the agent's code was given the outcome of `run`'s `step`: it is durable
    COMMITTED = "committed"  # `epoch`'s commit was acknowledged; `run` then has `length` records
    DIES = "dies"  # the process is about to kill itself, in the window `step`
    STOPS = "stops"  # the process is about to stop itself, in the window `step`
    KILLED = "killed"  # the driver killed `pid`; `step` says what it was
    WAKES = "wakes"  # the driver is about to wake `pid`, whose lease has run out


class Entry(Struct, frozen=True, omit_defaults=True):
    """One line."""

    fact: Fact
    run: str = ""
    step: str = ""
    epoch: int = 0
    length: int = 0
    pid: int = 0
    thread: int = 0


_LINE = msgspec.json.Decoder(Entry)


class Ledger:
    """The ledger as a process writes it; many processes write to one."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def write(
        self, fact: Fact, run: str = "", step: str = "", *, epoch: int = 0, length: int = 0, pid: int = 0
    ) -> None:
        """Append one line, in one write."""
        entry = Entry(fact, run, step, epoch, length, pid or os.getpid(), threading.get_native_id())
        os.write(self._fd, msgspec.json.encode(entry) + b"\n")


def read(path: Path) -> Iterator[Entry]:
    """Yield the entries in the order of their writing."""
    if not path.exists():
        return
    for line in path.read_bytes().split(b"\n"):
        if line:
            yield _LINE.decode(line)
