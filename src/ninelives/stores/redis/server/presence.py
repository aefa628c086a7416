"""Whether a prefix holds a store, asked without making one."""

from __future__ import annotations

from contextlib import closing

from redis.exceptions import RedisError

from ninelives.core.errors import StoreAway
from ninelives.stores.redis.server.address import parse
from ninelives.stores.redis.server.connection import LineLost, ServerConnection, translate
from ninelives.stores.redis.server.key_names import Names


def is_there(url: str) -> bool:
    """Tell whether there is a store. Raises StoreError."""
    address = parse(url)
    with closing(ServerConnection(address)) as line:
        try:
            (answer,) = line.ask([(b"EXISTS", Names(address.prefix).store)])
        except LineLost as error:
            raise StoreAway("Redis: the server hung up", remedy="Nothing was written; try again") from error
    if isinstance(answer, RedisError):
        raise translate(answer) from answer
    return bool(answer)
