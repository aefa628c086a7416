"""Output: items that a run's code emits for readers, as records of its journal.

A record of output belongs to one attempt at one step, and holds one item or several that came within a few
milliseconds. A retraction withdraws everything that the step emitted in this turn before it. What the agent
emits outside its steps has attempt 0 and is never withdrawn: replay skips it.

Because output is in the journal, readers see an item only when everything it depends on is durable.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Raw, Struct

from ninelives.core.clock import moment
from ninelives.core.errors import NotSerializable, UsageError
from ninelives.core.model.bodies import body_reader
from ninelives.core.model.run import Record
from ninelives.core.step_ids import step_text
from ninelives.core.values.codec import UNTYPED_CODEC, Codec, codec_for

ITEMS_PER_RECORD = 4096
"""More than a record can hold: an offset combines the record's number and the item's index in it."""


class OutputBody(Struct, frozen=True, omit_defaults=True):
    """The body of a record of output: turn, attempt, values, and whether earlier ones are withdrawn."""

    t: int = 0
    a: int = 0
    v: Sequence[Raw] = ()
    r: bool = False


class Output(Struct, frozen=True, kw_only=True):
    """One item of a run's output, or the retraction of what a step has emitted so far.

    `offset` grows; pass it to `run.stream` to continue after this item. `step` is empty for what the agent
    emitted outside its steps. An item with `is_retraction` has no value: discard all earlier items of the
    same turn and step.
    """

    offset: int
    at: datetime
    turn: int
    step: str
    attempt: int
    value: Any = None
    is_retraction: bool = False


_ENCODE = msgspec.json.Encoder().encode
read_output = body_reader(OutputBody, "is no record of output")


def encode_item(value: object) -> bytes:
    """Encode an emitted value by its type. Raises NotSerializable."""
    try:
        return UNTYPED_CODEC.encode(value)
    except NotSerializable as error:
        try:
            return codec_for(type(value), where="nl.emit").encode(value)
        except (UsageError, NotSerializable):
            raise error from None


def write_output(turn: int, attempt: int, values: Sequence[bytes], *, retracts: bool = False) -> bytes:
    """Return the body of a record of output."""
    return _ENCODE(OutputBody(turn, attempt, [Raw(value) for value in values], retracts))


def first_record(offset: int) -> int:
    """Return the number of the first record that may hold items after an offset."""
    return offset // ITEMS_PER_RECORD


def items_of(record: Record, codec: Codec, *, after: int = 0) -> list[Output]:
    """Return the items of a record after an offset. Raises Corrupt; Divergence."""
    body = read_output(record)
    at = moment(record.at_ms)
    step = step_text(record.step) if body.a else ""
    start = record.seq * ITEMS_PER_RECORD
    items = [
        Output(
            offset=start + number,
            at=at,
            turn=body.t,
            step=step,
            attempt=body.a,
            value=codec.recall(bytes(value), is_whole=False),  # the reader chose the type
        )
        for number, value in enumerate(body.v, 1)
        if start + number > after
    ]
    if body.r and start + 1 > after:
        items.append(
            Output(offset=start + 1, at=at, turn=body.t, step=step, attempt=body.a, is_retraction=True)
        )
    return items
