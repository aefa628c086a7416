"""Whether a prefix holds a store, checked without creating one."""

from __future__ import annotations

from contextlib import closing

from redis.exceptions import RedisError

from ninelives.core.errors import StoreAway
from ninelives.stores.redis.server.address import parse
from ninelives.stores.redis.server.connection import ConnectionLost, ServerConnection, translate
from ninelives.stores.redis.server.key_names import Names


def is_there(url: str) -> bool:
    """Return whether a store exists. Raises StoreError."""
    address = parse(url)
    with closing(ServerConnection(address)) as connection:
        try:
            (answer,) = connection.ask([(b"EXISTS", Names(address.prefix).store)])
        except ConnectionLost as error:
            raise StoreAway(
                "Redis: the server closed the connection", remedy="Nothing was written; try again"
            ) from error
    if isinstance(answer, RedisError):
        raise translate(answer) from answer
    return bool(answer)
