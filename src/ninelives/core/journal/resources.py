"""Resources that a run holds open, and their last known condition: bodies of HELD and RELEASED records.

A resource stays held until it is released, through crashes, parking and turns. A later HELD record of the
same step replaces the evidence of the earlier one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec
from msgspec import Struct

from ninelives.core.errors import Corrupt
from ninelives.core.model.run import Kind, Record

TargetKind = Literal["file", "branch", "url", "custom"]


class Target(Struct, frozen=True, omit_defaults=True):
    """A resource: its location, and its name there."""

    kind: TargetKind
    at: str = ""
    name: str = ""

    def __str__(self) -> str:
        if self.kind == "branch":
            return f"branch {self.name!r} of {self.at}"
        return f"{self.kind} {self.at or self.name!r}"


class Holding(Struct, frozen=True, omit_defaults=True):
    """A target, and the evidence of its condition at the last check."""

    target: Target
    evidence: dict[str, str] = {}


class _Released(Struct, frozen=True):
    of: str


_HOLDING = msgspec.json.Decoder(Holding).decode
_RELEASED = msgspec.json.Decoder(_Released).decode


def write_held(holding: Holding) -> bytes:
    """Return the body of a HELD record."""
    return msgspec.json.encode(holding)


def write_released(step: str) -> bytes:
    """Return the body of a RELEASED record: the step that held the resource."""
    return msgspec.json.encode(_Released(step))


def open_in(records: Iterable[Record]) -> dict[str, Holding]:
    """Return the resources held open after these records, by the step that holds each. Raises Corrupt."""
    found: dict[str, Holding] = {}
    for record in records:
        try:
            if record.kind is Kind.HELD:
                found[record.step] = _HOLDING(record.body)
            elif record.kind is Kind.RELEASED:
                found.pop(_RELEASED(record.body).of, None)
        except msgspec.DecodeError as error:
            raise Corrupt(f"record {record.seq} does not say what is held: {error}") from None
    return found


def difference(before: Mapping[str, str], now: Mapping[str, str]) -> str:
    """Return how a resource has changed, in words; empty when it has not."""
    changed = [name for name in sorted(before.keys() | now.keys()) if before.get(name) != now.get(name)]
    return ", ".join(
        f"its {name} was {_short(before.get(name))} and is {_short(now.get(name))}" for name in changed
    )


def _short(text: str | None) -> str:
    return "unknown" if text is None else text[:12]
