"""The ledger of a fleet: one append-only file outside the store, which the judge believes.

Each entry is one line and one write, made before what it announces (BEGIN) or after what it tells
(EFFECT, TOLD, COMMITTED). A kill between a truth and its line leaves one truth unchecked; no untruth is
ever written. A payment is its line: there is no moment between the two.
"""

from __future__ import annotations

import os
import threading
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
    """One line. `start` numbers the starts of a protected step; 0: it may be repeated."""

    fact: Fact
    run: str = ""
    step: str = ""
    epoch: int = 0
    length: int = 0
    pid: int = 0
    thread: int = 0
    start: int = 0


_LINE = msgspec.json.Decoder(Entry)


class Ledger:
    """The ledger as a process writes it; many processes write to one."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def write(
        self,
        fact: Fact,
        run: str = "",
        step: str = "",
        *,
        epoch: int = 0,
        length: int = 0,
        pid: int = 0,
        start: int = 0,
    ) -> None:
        """Append one line, in one write."""
        entry = Entry(fact, run, step, epoch, length, pid or os.getpid(), threading.get_native_id(), start)
        os.write(self._fd, msgspec.json.encode(entry) + b"\n")

    def has(self, fact: Fact, run: str, step: str) -> bool:
        """Tell whether somebody has written this; not all is held at once, for workers are watched."""
        named = f'"{run}"'.encode()
        with self._path.open("rb") as file:
            own = (_LINE.decode(line) for line in file if named in line and line.endswith(b"\n"))
            return any((one.fact, one.run, one.step) == (fact, run, step) for one in own)


def read(path: Path, since: int = 0) -> tuple[list[Entry], int]:
    """Return the entries after a place in the file, in the order of their writing, and the place reached."""
    with path.open("rb") as file:
        file.seek(since)
        lines, _, _ = file.read().rpartition(b"\n")
    if not lines:
        return [], since
    return [_LINE.decode(line) for line in lines.split(b"\n")], since + len(lines) + 1
