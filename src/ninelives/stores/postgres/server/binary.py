"""Values in PostgreSQL's binary format: only the types that our statements bind."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

Encoder = Callable[[Any], bytes]

_LONG, _INT, _ARRAY = struct.Struct("!q"), struct.Struct("!i"), struct.Struct("!iiiii")
OIDS = {"boolean": 16, "bytea": 17, "bigint": 20, "integer": 23, "text": 25}
OIDS |= {"boolean[]": 1000, "bytea[]": 1001, "text[]": 1009, "bigint[]": 1016}
"""The numbers of the types that we bind."""


def _boolean(value: bool) -> bytes:
    return b"\1" if value else b"\0"


def _bytea(value: bytes) -> bytes:
    return value


def _longs(values: Sequence[int | None]) -> bytes:
    # The common case has no NULL, and is packed by one call of `struct` for the whole array.
    if None in values:
        return _array(OIDS["bigint"], [None if one is None else _LONG.pack(one) for one in values])
    count = len(values)
    flat: list[int | None] = [8] * (2 * count)
    flat[1::2] = values
    return _ARRAY.pack(1, 0, OIDS["bigint"], count, 1) + struct.pack("!" + "iq" * count, *flat)


def _array(oid: int, values: Sequence[bytes | None]) -> bytes:
    pack = _INT.pack
    parts = [_ARRAY.pack(1, int(None in values), oid, len(values), 1)]
    for value in values:
        parts += (pack(-1),) if value is None else (pack(len(value)), value)
    return b"".join(parts)


def _booleans(values: Sequence[bool]) -> bytes:
    return _array(OIDS["boolean"], [b"\1" if value else b"\0" for value in values])


def _byteas(values: Sequence[bytes]) -> bytes:
    return _array(OIDS["bytea"], values)


def _texts(values: Sequence[str | None]) -> bytes:
    return _array(OIDS["text"], [None if value is None else value.encode() for value in values])


ENCODERS: dict[str, Encoder] = {
    "boolean": _boolean,
    "bytea": _bytea,
    "bigint": _LONG.pack,
    "integer": _INT.pack,
    "text": str.encode,
    "boolean[]": _booleans,
    "bytea[]": _byteas,
    "text[]": _texts,
    "bigint[]": _longs,
}
"""By type, its encoder; it may raise struct.error or UnicodeEncodeError."""
