"""Where a fork comes from: the body of a FORKED record.

The record ends a prefix that was copied from another run. Nested forks have one each, in order. While the
run's code is still being given outcomes from before such a record, what it derives (random numbers, UUIDs)
is derived as in the run that recorded them; after it, as its own.
"""

from __future__ import annotations

import msgspec
from msgspec import Raw, Struct

from ninelives.core.errors import Corrupt
from ninelives.core.model.run import Record


class Done(Struct, frozen=True):
    """What an action of the other run gave after the fork's point: fingerprint of its arguments, result."""

    f: str
    v: Raw


class Origin(Struct, frozen=True, omit_defaults=True):
    """The run and turn that recorded what comes before; `done` are its non-resumable actions after it."""

    run: str
    turn: int
    at: str
    after: str = "ask"
    done: dict[str, Done] = {}


class Passage:
    """The way through the prefixes of a fork, as its outcomes are taken."""

    __slots__ = ("_left", "origins")

    def __init__(self) -> None:
        self.origins: list[tuple[int, Origin]] = []
        self._left: list[int] = []

    def add(self, end_seq: int, origin: Origin, outcomes: int) -> None:
        """Note a prefix, how many outcomes were recorded up to its end, and where that is."""
        self.origins.append((end_seq, origin))
        self._left.append(outcomes - sum(self._left))

    def take(self, seq: int) -> None:
        """Note that an outcome was taken."""
        for number, (end_seq, _) in enumerate(self.origins):
            if seq < end_seq:
                self._left[number] -= 1
                return

    @property
    def here(self) -> Origin | None:
        """Return the run whose records the code is still going through; None when they are its own."""
        found = (origin for (_, origin), left in zip(self.origins, self._left, strict=True) if left > 0)
        return next(found, None)


def write_origin(origin: Origin) -> bytes:
    """Return the body of a FORKED record."""
    return msgspec.json.encode(origin)


def read_origin(record: Record) -> Origin:
    """Return where a fork comes from. Raises Corrupt."""
    try:
        return msgspec.json.decode(record.body, type=Origin)
    except msgspec.DecodeError as error:
        raise Corrupt(f"record {record.seq} does not say where the fork comes from: {error}") from None
