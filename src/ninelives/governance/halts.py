"""Halts: what must not go on. They live in one document, which every intent requires at a known version.

A halt holds calls; nothing fails by it. What is held goes on when the halt is lifted, or when its time is
over by the store's clock. The document is never removed, since intents rely on its version; a halt that is
over leaves it with the next change.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

import msgspec
from msgspec import Struct

from ninelives.core.errors import Corrupt
from ninelives.core.governance.verdicts import Call
from ninelives.core.model.document import HALTS, UNREADABLE, Document
from ninelives.engine.governor import Hold
from ninelives.engine.spec.registry import Step
from ninelives.views import documents

LOGGER = logging.getLogger("ninelives")
_AGAIN_MS = 1_000
TRIP = "trip:"
"""How the name begins by which a trip halts: no person did it."""


class Halt(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One halt. All selectors that it has must fit; one without selectors fits every call.

    `kills` makes supervisors end the worker processes that execute halted runs.
    """

    id: str
    reason: str
    by: str
    at_ms: int
    until_ms: int | None = None
    kills: bool = False
    agent: str | None = None
    action: str | None = None
    run: str | None = None
    labels: dict[str, str] = {}

    @property
    def what(self) -> str:
        """What is halted, in words: "agent 'shop', label tenant=acme"."""
        parts = [
            f"{name} {value!r}"
            for name, value in (("agent", self.agent), ("action", self.action), ("run", self.run))
            if value is not None
        ]
        parts += [f"label {name}={value}" for name, value in self.labels.items()]
        return ", ".join(parts) or "everything"

    @property
    def is_trip(self) -> bool:
        """Whether a trip has declared it, and no person."""
        return self.by.startswith(TRIP)

    def is_over(self, now_ms: int) -> bool:
        """Return whether its time is over."""
        return self.until_ms is not None and self.until_ms <= now_ms

    def fits(self, *, run: str, agent: str, labels: Mapping[str, str]) -> bool:
        """Return whether a run is among those that it may hold."""
        if (self.agent is not None and self.agent != agent) or (self.run is not None and self.run != run):
            return False
        return all(labels.get(name) == value for name, value in self.labels.items())

    def holds(self, call: Call, aliases: tuple[str, ...] = ()) -> bool:
        """Return whether it holds a call. `aliases` are earlier names of its action."""
        if self.action is not None and self.action not in (call.action, *aliases):
            return False
        return self.fits(run=call.run, agent=call.agent, labels=call.labels)


class Lifted(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A halt that is over: which person lifted it, when and why. Without a name, its time was over."""

    halt: Halt
    at_ms: int
    by: str = ""
    reason: str = ""


class HaltList(Struct, frozen=True):
    """The body of the document: the halts in force, and the last ones that are over, oldest first."""

    halts: tuple[Halt, ...] = ()
    lifted: tuple[Lifted, ...] = ()


class Halts:
    """What this process knows of the halts: a `governance.parts.KnowsHalts`."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self.version = UNREADABLE
        self.known: tuple[Halt, ...] = ()

    def held(self, step: Step, call: Call) -> Hold | None:
        """Return why a call must wait now. Unreadable halts hold everything."""
        if self.version == UNREADABLE:
            return Hold("until the document 'halts' can be read", self._now_ms() + _AGAIN_MS)
        for halt in self.known:
            if halt.holds(call, step.aliases) and not halt.is_over(self._now_ms()):
                return Hold(f"{held_words(halt)} ({halt.what}: {halt.reason}) is lifted", halt.until_ms)
        return None

    def refresh(self, store: documents.ReadsDocuments) -> None:
        """Read the halts again; if they are damaged, everything is held. Raises StoreUnavailable."""
        try:
            known, version = read_list(store)
            # In this order: a thread that reads the version first never has one that is newer than its halts.
            self.known = known.halts
            self.version = version
        except Corrupt as error:
            LOGGER.error("%s", error)  # noqa: TRY400 (which document, and what to do: no traceback is needed)
            self.version, self.known = UNREADABLE, ()


def held_words(halt: Halt) -> str:
    """Return how each run that waits for this halt begins to say so."""
    return f"until the halt {halt.id}"


def read_halts(store: documents.ReadsDocuments, now_ms: int) -> tuple[Halt, ...]:
    """Return the halts that are in force at a moment. Raises Corrupt."""
    return tuple(one for one in read_list(store)[0].halts if not one.is_over(now_ms))


def read_list(store: documents.ReadsDocuments) -> tuple[HaltList, int]:
    """Return the halts of a store, and the document's version; 0: there is none. Raises Corrupt."""
    found = documents.find(store, HALTS)
    return (_decoded(found), found.version) if found is not None else (HaltList(), 0)


def _decoded(found: Document) -> HaltList:
    try:
        return msgspec.json.decode(found.body, type=HaltList)
    except msgspec.DecodeError as error:
        raise Corrupt(
            f"the document {HALTS!r} is not what was written: {error}",
            remedy="Nothing begins while it cannot be read. Restore it from a backup",
        ) from error
