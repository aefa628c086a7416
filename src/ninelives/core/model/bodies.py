"""The bodies of records: each is a struct in JSON."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import msgspec

from ninelives.core.errors import Corrupt
from ninelives.core.model.run import Record

T = TypeVar("T")


def body_reader(kind: type[T], what: str, remedy: str | None = None) -> Callable[[Record], T]:
    """Return the function that reads a record's body as this struct.

    It raises Corrupt for a body that we did not write: "record 7 `what`: …".
    """
    decode = msgspec.json.Decoder(kind).decode

    def read(record: Record) -> T:
        try:
            return decode(record.body)
        except msgspec.DecodeError as error:
            raise Corrupt(
                f"record {record.seq} {what}: {error}", step=record.step or None, remedy=remedy
            ) from None

    return read
