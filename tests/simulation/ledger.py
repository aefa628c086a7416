"""The ledger: what happened, in one order, as the world and the store saw it. The judge believes it."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

from msgspec import Struct


class Fact(StrEnum):
    """What a line says."""

    STARTED = "started"  # a client was told that the run is durable
    CLAIMED = "claimed"  # the store gave the run to the process
    LEFT = "left"  # the store took the run from the process: parked, ended, or the session was ended
    RECORDED = "recorded"  # the store has a record: `name` is its kind
    BEGIN = "begin"  # a body begins
    EFFECT = "effect"  # it has touched the world
    DONE = "done"  # it is about to return
    PROBE = "probe"  # somebody asked whether it happened
    TOLD = "told"  # the run's code was given an outcome
    ANSWERED = "answered"  # a person answered; `name` is what he said


class Event(Struct, frozen=True, kw_only=True):
    """One line.

    `key` is what a body has as its idempotency key, `identity` the same in all generations; `start` numbers
    the starts of what must not be repeated (0: it may be), `epoch` the owners of a run.
    """

    fact: Fact
    at: float = 0.0
    process: str = ""
    run: str = ""
    turn: int = 0
    step: str = ""
    name: str = ""
    key: str = ""
    identity: str = ""
    value: int = 0
    start: int = 0
    epoch: int = 0

    def __str__(self) -> str:
        told = (self.run, self.step, self.name, self.value or "", self.start or "", self.epoch or "")
        return f"{self.process} {self.fact} {' '.join(str(one) for one in told if one != '')}"


class Ledger:
    """Lines, and who reads along."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.readers: list[Callable[[Event], None]] = []

    def write(self, event: Event) -> None:
        """Append a line."""
        self.events.append(event)
        for read in self.readers:
            read(event)
