"""Messages to a process of a trial: which agent, store and directory to use, and which fault to inject.

A fault fires at the first moment of its kind whose name was not passed before. So a run that is killed again
and again reaches every step: each kill hits it one step further on.
"""

from __future__ import annotations

from enum import StrEnum
from urllib.parse import quote

from msgspec import Struct

RUN = "chaos"
"""The run's id: the same in every trial, so that the keys of its actions are the same, too."""
LEASE_SECONDS = 10.0


def step_in(run: str, step: str) -> str:
    """Return a step's name in the ledger, with the run's id for child runs: their step names may be equal."""
    return step if run == RUN else f"{run} {step}"


def has_key(sent: bytes, key: str) -> bool:
    """Return whether bytes that were sent contain an action's key, plain or quoted."""
    return any(form.encode() in sent for form in (key, quote(key), quote(key, safe="")))


class FaultMoment(StrEnum):
    """When a fault fires."""

    BEGIN = "as the body begins"
    END = "after the body, before its result is recorded"
    BEFORE = "before a store call"
    AFTER = "after a store call"
    PROGRESS = "after a step was recorded"
    LINE = "at the line"


class FaultKind(StrEnum):
    """What a fault does to a process or its store."""

    KILL = "killed"  # kill -9
    STOP = "stopped"  # SIGSTOP, until another process has taken over
    TERM = "terminated"  # SIGTERM, as at a deploy
    FULL = "disk full"  # the store refuses each write a few times
    CUT = "store cut off"  # the store is unreachable for a while
    LOST = "answer lost"  # the store did the write, but the caller never got the answer


class InjectedFault(Struct, frozen=True, kw_only=True):
    """One fault, at the first point not in `passed`; only at `only` or at steps named in `among`, if given.

    `skip` is how many such points to let pass first; `line` is FILE:LINE. `seconds` is how long the store is
    cut off or its disk is full, or how long after its point a process is killed.
    """

    kind: FaultKind
    moment: FaultMoment
    passed: tuple[str, ...] = ()
    only: str = ""
    among: tuple[str, ...] = ()
    skip: int = 0
    seconds: float = 0.0
    line: str = ""

    def fits(self, point: str) -> bool:
        """Return whether the fault may fire at this point."""
        if point in self.passed or self.only not in ("", point):
            return False
        return not self.among or point.rpartition("/")[2].partition("[")[0] in self.among


class Settlement(Struct, frozen=True, kw_only=True):
    """The answer to an action in doubt, given in a person's place from what the effect recorder saw."""

    step: str
    happened: bool
    value: str = ""
    """The result, as JSON."""


class People(Struct, frozen=True, kw_only=True):
    """What people send: the answer to every question, as JSON, and signals by name."""

    answer: str = ""
    signals: tuple[tuple[str, str], ...] = ()


class LifeSettings(Struct, frozen=True, kw_only=True):
    """What one process gets: it loads the code, starts or resumes the run, and exits."""

    target: str
    words: tuple[str, ...] = ()
    named: tuple[str, ...] = ()
    number: int = 0
    home: str = ""
    """The trial's directory: ledger and store."""
    tree: str = ""
    """The working directory: a copy of the user's tree."""
    original: str = ""
    """The user's tree."""
    url: str = ""
    lease_seconds: float = LEASE_SECONDS
    fault: InjectedFault | None = None
    settlements: tuple[Settlement, ...] = ()
    people: People = People()
    dead: tuple[int, ...] = ()
    """Processes known to be gone with all their children; a supervisor would report them to the store."""
    environment: dict[str, str] = {}
