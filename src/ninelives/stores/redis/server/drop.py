"""Removing a whole deployment: every key with its hash tag."""

from __future__ import annotations

from typing import Any

from redis.exceptions import RedisError

from ninelives.core.errors import StoreAway
from ninelives.stores.redis.server.address import parse
from ninelives.stores.redis.server.connection import ConnectionLost, ServerConnection, translate
from ninelives.stores.redis.server.key_names import Names

_PART = 1_000


def drop(url: str) -> None:
    """Remove a whole deployment that is no longer used. Raises StoreError.

    If we die here, part of it is left, and a second call removes the rest.
    """
    address = parse(url)
    connection = ServerConnection(address)
    try:
        cursor, pattern = b"", Names(address.prefix).tag + b"*"  # a prefix has no wildcards in it
        while cursor != b"0":
            cursor, names = _ask(connection, b"SCAN", cursor or b"0", b"MATCH", pattern, b"COUNT", _PART)
            if names:
                _ask(connection, b"UNLINK", *names)
    except ConnectionLost as error:
        raise StoreAway(
            "Redis: the server closed the connection", remedy="Try again to remove the rest"
        ) from error
    finally:
        connection.close()


def _ask(connection: ServerConnection, *command: bytes | int) -> Any:
    (answer,) = connection.ask([command])
    if isinstance(answer, RedisError):
        raise translate(answer) from answer
    return answer
