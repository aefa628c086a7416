"""Removing a deployment as a whole: every key with its hash tag."""

from __future__ import annotations

from typing import Any

from redis.exceptions import RedisError

from ninelives.core.errors import StoreAway
from ninelives.stores.redis.server.address import parse
from ninelives.stores.redis.server.connection import LineLost, ServerConnection, translate
from ninelives.stores.redis.server.key_names import Names

_PART = 1_000


def drop(url: str) -> None:
    """Remove all of a deployment that nobody uses any more. Raises StoreError.

    If we die here: a part of it is left, and removing it again removes the rest.
    """
    address = parse(url)
    line = ServerConnection(address)
    try:
        cursor, pattern = b"", Names(address.prefix).tag + b"*"  # a prefix has nothing that patterns know
        while cursor != b"0":
            cursor, names = _ask(line, b"SCAN", cursor or b"0", b"MATCH", pattern, b"COUNT", _PART)
            if names:
                _ask(line, b"UNLINK", *names)
    except LineLost as error:
        raise StoreAway("Redis: the server hung up", remedy="Remove the rest by another try") from error
    finally:
        line.close()


def _ask(line: ServerConnection, *command: bytes | int) -> Any:
    (answer,) = line.ask([command])
    if isinstance(answer, RedisError):
        raise translate(answer) from answer
    return answer
