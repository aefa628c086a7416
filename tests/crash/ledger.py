"""The ledger: what a process was about to do, what it was told is durable, and what it did to the world.

It is a plain append-only file outside the store, and the judge believes it, not the store. Each entry is
one line and one write, so a kill leaves whole lines; only the last may be torn, and it is then as if it
had never been written. If we die between an acknowledgement and its line, one truth is not checked; no
untruth is ever written.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path

import msgspec
from msgspec import Struct


class Fact(StrEnum):
    """What a line says."""

    LIFE = "life"  # a process begins; `name` is its session
    ABOUT = "about"  # something is about to be done
    CREATED = "created"  # a run's creation was acknowledged
    CLAIMED = "claimed"  # a claim was acknowledged: `run` at `epoch`
    FOUND = "found"  # the step's outcome was read from the journal
    APPENDED = "appended"  # a commit was acknowledged: `run` ends with record `seq` of `check`
    EFFECT = "effect"  # the world was touched by `run`'s step `name`, under `key` if it has one
    SETTLED = "settled"  # the settling of business key `key` was acknowledged
    SIGNALLED = "signalled"  # signal `name` to `run` was acknowledged
    ANSWERED = "answered"  # the answer to item `name` was acknowledged
    KEPT = "kept"  # blob `check` was acknowledged
    REFUSED = "refused"  # the store said no, in `name`: nothing of it may be there
    DONE = "done"  # the process came to its end


class Entry(Struct, frozen=True, omit_defaults=True):
    """One line."""

    fact: Fact
    run: str = ""
    name: str = ""
    seq: int = -1
    check: str = ""
    epoch: int = 0
    key: str = ""
    pid: int = 0


_LINE = msgspec.json.Decoder(Entry)


class Ledger:
    """The ledger as a process writes it; many processes may write to one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._pid = os.getpid()
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._first_ack: int | None = None
        self._mend()

    def _mend(self) -> None:
        """End a line that a dead process left torn, so that the next one is a line of its own."""
        image = self.path.read_bytes()
        if image and not image.endswith(b"\n"):
            os.write(self._fd, b"\n")

    def announce(self, fd: int) -> None:
        """Write one byte to a pipe at the first acknowledgement: who wants to kill us waits for it."""
        self._first_ack = fd

    def write(self, fact: Fact, run: str = "", name: str = "", **fields: object) -> None:
        """Append one line, in one write."""
        entry = msgspec.convert({"fact": fact, "run": run, "name": name, "pid": self._pid} | fields, Entry)
        os.write(self._fd, msgspec.json.encode(entry) + b"\n")
        if self._first_ack is not None and fact in (Fact.CREATED, Fact.APPENDED):
            os.write(self._first_ack, b"!")
            self._first_ack = None


def read(path: Path) -> Iterator[Entry]:
    """Yield the entries; a torn line (there is at most one per death) says nothing."""
    if not path.exists():
        return
    for line in path.read_bytes().split(b"\n"):
        try:
            yield _LINE.decode(line)
        except msgspec.DecodeError:
            continue


def count(path: Path, fact: Fact) -> int:
    """Count the lines of a kind."""
    return sum(entry.fact is fact for entry in read(path))
