"""Wake-ups: each store object blocks on its list, and writers push to the empty ones.

The list's name is registered where writers find it (`wake` in `parts.lua`) with a time at which it expires; a
waiting process registers it again. What was pushed between two calls stays until it is popped.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from contextlib import suppress

from redis.exceptions import RedisError

from ninelives.stores.redis.server.connection import ConnectionLost, ServerConnection
from ninelives.stores.shared.wakeups import ServerWakeUps, readable

# The list of a killed process expires by itself; a live one renews it six times before that.
_EXPIRE_SECONDS, _RENEW_SECONDS = 120, 20.0


class WakeupList(ServerWakeUps[ServerConnection]):
    """Wait for what is pushed to our own list, which is registered in one channel."""

    def __init__(self, channel: bytes, tag: bytes, connect: Callable[[], ServerConnection]) -> None:
        super().__init__(connect, (ConnectionLost,))
        self._channel, self._list = channel, tag + b"ear:" + secrets.token_hex(8).encode()
        self._renew_at = 0.0

    def _subscribe(self, connection: ServerConnection) -> None:
        self._renew_at = 0.0
        self._renewed(connection)

    def _is_woken(self, connection: ServerConnection, timeout_seconds: float) -> bool:
        return self._renewed(connection) or self._popped(connection, timeout_seconds)

    def _disconnect(self, connection: ServerConnection) -> None:
        with suppress(ConnectionLost):
            connection.ask([(b"ZREM", self._channel, self._list), (b"DEL", self._list)])
        connection.close()

    def _renewed(self, connection: ServerConnection) -> bool:
        """Register our list from time to time; True if it was missing, so that we may have missed work."""
        if time.monotonic() < self._renew_at:
            return False
        ((seconds, _),) = connection.ask([(b"TIME",)])
        (added,) = connection.ask([(b"ZADD", self._channel, int(seconds) + _EXPIRE_SECONDS, self._list)])
        if isinstance(added, RedisError):  # no memory, no right: then we rely on polling
            return False
        self._renew_at = time.monotonic() + _RENEW_SECONDS
        return bool(added)

    def _popped(self, connection: ServerConnection, timeout_seconds: float) -> bool:
        # Without waiting first: a caller that has no time left still gets what is there.
        (found,) = connection.ask([(b"LPOP", self._list)])
        if timeout_seconds <= 0.0 or found is not None:
            return isinstance(found, bytes)
        # BLPOP takes 0 as forever.
        seconds = max(0.001, min(timeout_seconds, _RENEW_SECONDS))
        connection.send([(b"BLPOP", self._list, f"{seconds:.3f}")])
        if connection.fileno() not in readable([connection.fileno(), self._inner], seconds + 5.0):
            if not self._is_closed:
                raise ConnectionLost  # the server has not even answered that the timeout is over
            connection.close()
            return False
        return isinstance(connection.answer(), list)
