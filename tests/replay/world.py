"""The world outside: an append-only ledger of what bodies did, and a model that never answers alike.

It outlives every life of the runtime. Whoever is dead can no longer touch it: a body that goes on running
in an abandoned life ends at its next word to the world.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Literal

import msgspec
from msgspec import Struct

Fact = Literal["asked", "told", "drawn", "start", "done", "failed", "durable", "life"]


class Died(SystemExit):
    """The process is dead. SystemExit, because that is what leaves an event loop at once."""


class Event(Struct, frozen=True, omit_defaults=True):
    """One line: what happened, in which turn, to which call; `key` is the step's, `x` what it was given."""

    fact: Fact
    life: int
    turn: int = 0
    label: str = ""
    role: str = ""
    x: str = ""
    key: str = ""
    value: str = ""


class World:
    """The ledger of one program, in memory or in a file that many processes append to."""

    def __init__(self, seed: int, path: Path | None = None, life: int = 0) -> None:
        self.rng = Random(f"{seed}:{life}")
        self.life = life
        self.is_over = threading.Event()
        self.events: list[Event] = []
        self._answers = 0
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600) if path else None
        self.bodies_allowed = True

    def next_life(self) -> None:
        """Begin another life."""
        self.life += 1
        self.is_over = threading.Event()
        self.tell("life")

    def tell(self, fact: Fact, **fields: object) -> None:
        """Append a line; the dead say nothing. Raises Died."""
        if self.is_over.is_set():
            raise Died
        event = msgspec.convert({"fact": fact, "life": self.life, **fields}, Event)
        self.events.append(event)
        if self._fd is not None:
            os.write(self._fd, msgspec.json.encode(event) + b"\n")

    def speaker(self) -> Callable[..., None]:
        """Return `tell` of this life, which later lives do not bring back."""
        over = self.is_over

        def tell(fact: Fact, **fields: object) -> None:
            if over.is_set():
                raise Died
            self.tell(fact, **fields)

        return tell

    def answer(self) -> int:
        """Give what was never given before."""
        self._answers += 1
        return int.from_bytes(os.urandom(3), "big") * 1000 + self._answers % 1000


def read(path: Path) -> list[Event]:
    """Read a ledger; the torn last line of a killed process says nothing."""
    events = []
    for line in path.read_bytes().split(b"\n"):
        try:
            events.append(msgspec.json.decode(line, type=Event))
        except msgspec.DecodeError:
            continue
    return events
