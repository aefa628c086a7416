"""What a life is told: which agent, on which store, in which directory, and what is to befall it.

A fault happens at the first moment of its kind whose name has not been passed before; so a run that is
killed again and again comes to every step, and each kill finds it further on.
"""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

RUN = "chaos"
"""The run's id: the same in every trial, so that the keys of its actions are the same, too."""
LEASE_SECONDS = 10.0
OUTCOMES = frozenset({"result", "failure", "signal", "withdrawn", "turn", "end"})
"""Records that are progress."""


def step_in(run: str, step: str) -> str:
    """Name a step for the ledger: children of the run have steps of the same names."""
    return step if run == RUN else f"{run} {step}"


class FaultMoment(StrEnum):
    """When a fault happens."""

    BEGIN = "as the body begins"
    END = "after the body, before its result is recorded"
    BEFORE = "before the store's call"
    AFTER = "after the store's call"
    PROGRESS = "after a step was recorded"
    LINE = "at the line"


class Deed(StrEnum):
    """What a process does to itself, or its store to it."""

    KILL = "killed"  # kill -9
    STOP = "stopped"  # SIGSTOP, until others have taken over
    TERM = "told to stop"  # SIGTERM, as at a deploy
    FULL = "disk full"  # the store refuses each write a few times
    CUT = "store cut off"  # the store is gone for a while
    LOST = "answer lost"  # the store did it, and nobody was told


class InjectedFault(Struct, frozen=True, kw_only=True):
    """One fault, at the first moment that was not `passed`, or at the `only` one.

    `seconds` is how long a store is cut off, or how long its disk is full; `line` is FILE:LINE.
    """

    deed: Deed
    moment: FaultMoment
    passed: tuple[str, ...] = ()
    only: str = ""
    seconds: float = 0.0
    line: str = ""


class Settlement(Struct, frozen=True, kw_only=True):
    """What became of an action in doubt, as a person would say who has looked: the recorder saw it."""

    step: str
    happened: bool
    value: str = ""
    """The result, as JSON."""


class People(Struct, frozen=True, kw_only=True):
    """What people say: the answer to every question, as JSON, and signals, by name."""

    answer: str = ""
    signals: tuple[tuple[str, str], ...] = ()


class LifeOrder(Struct, frozen=True, kw_only=True):
    """What a process is to do: load the code, start the run or go on with it, and leave."""

    number: int
    target: str
    words: tuple[str, ...]
    named: tuple[str, ...]
    home: str
    """The trial's own directory: ledger and store."""
    tree: str
    """The working directory: a copy of the user's."""
    original: str
    """What the tree is a copy of."""
    url: str
    lease_seconds: float = LEASE_SECONDS
    fault: InjectedFault | None = None
    settlements: tuple[Settlement, ...] = ()
    people: People = People()
    dead: tuple[int, ...] = ()
    """Processes that were seen to be gone, with all that they started: a supervisor would say so."""
    environment: dict[str, str] = {}
