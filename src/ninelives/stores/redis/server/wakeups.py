"""Wake-ups: each store object blocks on a list of its own, and writers push to those that are empty.

A list is an ear: it is named where writers look (`wake` in `parts.lua`) until it is deaf, and named again
by whoever waits. What was pushed between two calls stays until it is popped.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from contextlib import suppress

from redis.exceptions import RedisError

from ninelives.core.errors import StoreError
from ninelives.stores.redis.server.connection import LineLost, ServerConnection
from ninelives.stores.shared.wakeups import WakeUps, readable

_DEAF_SECONDS, _RENEW_SECONDS = 120, 20.0


class WakeupList(WakeUps[ServerConnection]):
    """Wait for what is pushed to a list of our own, named among those of one channel."""

    def __init__(self, ears: bytes, tag: bytes, connect: Callable[[], ServerConnection]) -> None:
        super().__init__()
        self._ears, self._ear = ears, tag + b"ear:" + secrets.token_hex(8).encode()
        self._connect = connect
        self._renew_at = 0.0

    def _listen(self, timeout_seconds: float) -> ServerConnection | None:
        line: ServerConnection | None = None
        try:
            line = self._connect()
            self._renew_at = 0.0
            self._renewed(line)
        except (StoreError, LineLost):
            if line is not None:
                line.close()
            self._rest(timeout_seconds)
            return None
        return line

    def _hear(self, line: ServerConnection, timeout_seconds: float) -> tuple[ServerConnection | None, bool]:
        try:
            woken = self._renewed(line) or self._popped(line, timeout_seconds)
        except LineLost:
            line.close()
            return None, True
        return None if line.is_lost else line, woken

    def _leave(self, line: ServerConnection) -> None:
        with suppress(LineLost):
            line.ask([(b"ZREM", self._ears, self._ear), (b"DEL", self._ear)])
        line.close()

    def _renewed(self, line: ServerConnection) -> bool:
        """Name our ear again from time to time; True if it was forgotten, and something may be missed."""
        if time.monotonic() < self._renew_at:
            return False
        ((seconds, _),) = line.ask([(b"TIME",)])
        (added,) = line.ask([(b"ZADD", self._ears, int(seconds) + _DEAF_SECONDS, self._ear)])
        if isinstance(added, RedisError):  # no memory, no right: then we are woken by the clock
            return False
        self._renew_at = time.monotonic() + _RENEW_SECONDS
        return bool(added)

    def _popped(self, line: ServerConnection, timeout_seconds: float) -> bool:
        (found,) = line.ask([(b"LPOP", self._ear)])
        if timeout_seconds <= 0.0 or found is not None:
            return isinstance(found, bytes)
        seconds = max(0.001, min(timeout_seconds, _RENEW_SECONDS))
        line.send([(b"BLPOP", self._ear, f"{seconds:.3f}")])
        if line.fileno() not in readable([line.fileno(), self._inner], seconds + 5.0):
            if not self._is_closed:
                raise LineLost  # the server has not even said that the time is over
            line.close()
            return False
        return isinstance(line.answer(), list)
