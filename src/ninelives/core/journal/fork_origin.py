"""The origin of a fork: the body of a FORKED record.

The record ends a prefix that was copied from another run. Nested forks have one each, in order. While the
code still receives outcomes from before such a record, random numbers and UUIDs are derived from the id of
the run that recorded them; after it, from the fork's id.
"""

from __future__ import annotations

import msgspec
from msgspec import Raw, Struct

from ninelives.core.model.bodies import body_reader


class Done(Struct, frozen=True, omit_defaults=True):
    """An action that the parent run did after the fork's point: fingerprint of its arguments, and result.

    `o` is where the data of the result came from.
    """

    f: str
    v: Raw
    o: tuple[str, ...] = ()


class Origin(Struct, frozen=True, omit_defaults=True):
    """The run and turn that recorded the prefix; `done` are its non-resumable actions after the prefix."""

    run: str
    turn: int
    at: str
    after: str = "ask"
    done: dict[str, Done] = {}


class Passage:
    """Tracks which prefix of a fork the code is in, as its outcomes are taken."""

    __slots__ = ("_left", "origins")

    def __init__(self) -> None:
        self.origins: list[tuple[int, Origin]] = []
        self._left: list[int] = []

    def add(self, end_seq: int, origin: Origin, outcomes: int) -> None:
        """Add a prefix: its end, its origin, and the number of outcomes up to that end."""
        self.origins.append((end_seq, origin))
        self._left.append(outcomes - sum(self._left))

    def take(self, seq: int) -> None:
        """Count an outcome as taken."""
        for number, (end_seq, _) in enumerate(self.origins):
            if seq < end_seq:
                self._left[number] -= 1
                return

    @property
    def here(self) -> Origin | None:
        """The origin of the records that the code is replaying; None once they are the fork's."""
        found = (origin for (_, origin), left in zip(self.origins, self._left, strict=True) if left > 0)
        return next(found, None)


def write_origin(origin: Origin) -> bytes:
    """Return the body of a FORKED record."""
    return msgspec.json.encode(origin)


read_origin = body_reader(Origin, "does not say where the fork comes from")
