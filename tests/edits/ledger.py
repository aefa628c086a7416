"""The world outside: a ledger of what bodies did, and the words of generated agents for it.

It outlives every life. A life that is dead says nothing more. In a process of its own it is a file.
"""

from __future__ import annotations

import asyncio
import os
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

import ninelives as nl

Fact = Literal["life", "asked", "begin", "effect", "end", "verified", "settled"]
NAP_SECONDS = 0.01
"""What some bodies take: long enough for an intent that is written lazily to be durable."""


class Event(Struct, frozen=True, omit_defaults=True):
    """One line: in which life, what, of which step, with which arguments and key, in which run and turn."""

    fact: Fact
    life: int
    lineage: str = ""
    to: str = ""
    n: int = 0
    key: str = ""
    run: str = ""
    turn: int = 0

    def __str__(self) -> str:
        if self.fact == "life":
            return f"life {self.life}"
        return f"  {self.fact} {self.lineage}({self.to}, {self.n}) key={self.key} run={self.run}.{self.turn}"


class Ledger:
    """What happened; `on_event` is asked after each line and may end the life."""

    def __init__(self, path: Path | None = None) -> None:
        self.events: list[Event] = read_file(path) if path is not None and path.exists() else []
        self.life = sum(event.fact == "life" for event in self.events)
        self.is_over = False
        self.on_event: Callable[[Event], None] = lambda _: None
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600) if path else None

    def next_life(self) -> None:
        """Begin another life."""
        self.life += 1
        self.is_over = False
        self.add(Event("life", self.life))

    def add(self, event: Event) -> None:
        """Write a line, unless the life is over."""
        if self.is_over:
            return
        self.events.append(event)
        if self._fd is not None:
            os.write(self._fd, msgspec.json.encode(event) + b"\n")
        self.on_event(event)

    def close(self) -> None:
        """Close the file, if it is one."""
        if self._fd is not None:
            os.close(self._fd)


def read_file(path: Path) -> list[Event]:
    """Read a ledger from its file."""
    return [msgspec.json.decode(line, type=Event) for line in path.read_bytes().split(b"\n") if line]


current = Ledger()
"""The ledger that generated code writes to."""


def use(ledger: Ledger) -> None:
    """Let generated code write to a ledger."""
    global current  # noqa: PLW0603 (one pair at a time, in a process)
    current = ledger


def answer(lineage: str, to: str, n: int) -> str:
    """Return what the model says, which is always the same."""
    return "yes" if zlib.crc32(f"{lineage}:{to}:{n}".encode()) % 2 else "no"


def value(lineage: str, to: str, n: int) -> str:
    """Return what an effect or a read gives."""
    return f"{lineage}({to}, {n})"


async def decide(lineage: str, to: str, n: int) -> str:
    """Decide; decisions may be asked for as often as anybody likes."""
    current.add(Event("asked", current.life, lineage, to, n))
    await _nap(lineage, n)
    return answer(lineage, to, n)


async def read(lineage: str, to: str, n: int) -> str:
    """Read."""
    current.add(Event("asked", current.life, lineage, to, n))
    await _nap(lineage, n)
    return value(lineage, to, n)


async def act(lineage: str, to: str, n: int) -> str:
    """Do something to the world."""
    ledger, key, info = current, nl.key(), nl.info()
    said = (ledger.life, lineage, to, n, key, info.run, info.turn)
    ledger.add(Event("begin", *said))
    await _nap(lineage, n)
    ledger.add(Event("effect", *said))
    await _nap(lineage, n + 1)
    ledger.add(Event("end", *said))
    return value(lineage, to, n)


async def fail(lineage: str, to: str, n: int) -> str:
    """Fail before anything was done."""
    current.add(Event("begin", current.life, lineage, to, n, nl.key(), nl.info().run))
    await _nap(lineage, n)
    raise nl.Permanent("refused")


def has_happened(lineage: str, to: str, n: int, key: str) -> bool:
    """Return whether an effect has happened, as its provider knows it: by its key."""
    asked = (lineage, to, n, key)
    return any(
        event.fact == "effect" and (event.lineage, event.to, event.n, event.key) == asked
        for event in current.events
    )


def verify(lineage: str, to: str, n: int, key: str) -> object:
    """Say truthfully whether an effect has happened."""
    current.add(Event("verified", current.life, lineage, to, n, key))
    if has_happened(lineage, to, n, key):
        return nl.Happened(value(lineage, to, n))
    return nl.NotHappened()


async def _nap(lineage: str, n: int) -> None:
    match zlib.crc32(f"{lineage}/{n}".encode()) % 3:
        case 0:
            await asyncio.sleep(NAP_SECONDS)
        case 1:
            await asyncio.sleep(0)
