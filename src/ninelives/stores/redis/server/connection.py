"""Connections: opened in one way, the server's settings checked each time, errors translated."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from socket import socket
from typing import Any

from redis import exceptions as driver
from redis.backoff import NoBackoff
from redis.connection import Connection, SSLConnection
from redis.exceptions import (
    AuthenticationError,
    AuthenticationWrongNumberOfArgsError,
    BusyLoadingError,
    NoPermissionError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
)
from redis.retry import Retry

from ninelives.core.errors import Corrupt, StoreAway, StoreError, StoreUnavailable
from ninelives.stores.redis.server.address import Address
from ninelives.stores.redis.server.scripts import LuaScript

Command = Sequence[bytes | str | int | float]
# A silent server must not hold a worker beyond its patience: what was sent is then looked up.
_TIMEOUT_SECONDS = 15.0
_PASSING = ("MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "BUSY", "LOADING", "UNBLOCKED")


class ConnectionLost(Exception):
    """The connection is lost or unusable; what was sent may or may not have been done."""


class Tls(SSLConnection):
    """A connection that limits the TLS handshake in time: a port without TLS would never answer."""

    def _wrap_socket_with_ssl(self, sock: socket) -> Any:
        sock.settimeout(self.socket_connect_timeout)
        try:
            wrapped = super()._wrap_socket_with_ssl(sock)  # type: ignore[no-untyped-call]
        except TimeoutError as error:
            raise driver.ConnectionError("no answer to TLS; use redis:// if this port has no TLS") from error
        wrapped.settimeout(self.socket_timeout)
        return wrapped


class ServerConnection:
    """A connection, and the name under which it counts its writes."""

    def __init__(self, address: Address) -> None:
        """Connect. Raises StoreUnavailable."""
        options = dict(address.options)
        made: Any = Tls if options.pop("connection_class", Connection) is SSLConnection else Connection
        defaults = {"socket_timeout": _TIMEOUT_SECONDS, "socket_connect_timeout": 5.0}
        self._connection: Any = made(
            **(defaults | options), retry=Retry(NoBackoff(), 0), protocol=2, client_name="ninelives"
        )
        self.name = secrets.token_hex(12).encode()
        self.count = 0
        self.is_lost = False
        self.history = ""
        try:
            self._connection.connect()
        except RedisError as error:
            self.close()
            raise translate(error) from error
        except OSError as error:
            self.close()
            raise StoreAway(f"Redis: {error}", remedy=_UNREACHABLE) from error

    @property
    def is_idle(self) -> bool:
        """Whether it can be used again."""
        return not self.is_lost

    def ask(self, commands: Sequence[Command]) -> list[Any]:
        """Send commands, and return all answers; a refused command's answer is an exception.

        Raises ConnectionLost.
        """
        self.send(commands)
        return [self.answer() for _ in commands]

    def send(self, commands: Sequence[Command]) -> None:
        """Send commands whose answers are read later. Raises ConnectionLost."""
        if self.is_lost:
            raise ConnectionLost
        try:
            self._connection.send_packed_command(self._connection.pack_commands(commands), check_health=False)
        except (RedisError, OSError) as error:
            self.close()
            raise ConnectionLost from error

    def answer(self) -> Any:
        """Read one answer. Raises ConnectionLost."""
        try:
            return self._connection.read_response()
        except BusyLoadingError as error:
            self.close()
            raise ConnectionLost from error
        except ResponseError as error:
            if isinstance(error, ReadOnlyError) or str(error).startswith(_PASSING):
                self.close()  # another server has taken over, or this one is not ready: connect again
                raise ConnectionLost from error
            return error
        except (RedisError, OSError) as error:
            self.close()
            raise ConnectionLost from error

    def call(self, script: LuaScript, keys: Sequence[bytes], values: Sequence[bytes | str | int]) -> Any:
        """Run a script. Raises ConnectionLost; StoreError if the server refuses it before any write."""
        rest = (len(keys), *keys, *values)
        (answer,) = self.ask([(b"EVALSHA", script.digest, *rest)])
        if isinstance(answer, NoScriptError):  # a new server, or its script cache was flushed
            (answer,) = self.ask([(b"EVAL", script.text, *rest)])
        if isinstance(answer, RedisError):
            raise translate(answer) from answer
        return answer

    def fileno(self) -> int:
        """Return the descriptor to wait on for an answer."""
        return int(self._connection._sock.fileno())  # noqa: SLF001 (the driver has no other way)

    def close(self) -> None:
        """Close the connection."""
        self.is_lost = True
        self._connection.disconnect()


_UNREACHABLE = "Nothing was written. Check that the server runs and can be reached"


def translate(error: Exception) -> StoreError:
    """Return our error for one of the driver's: of a command that was refused, or never sent."""
    said = str(error).strip().rstrip(".") or type(error).__name__
    what = f"Redis: {said}"
    if isinstance(error, OutOfMemoryError) or said.startswith("OOM"):
        return StoreUnavailable(what, remedy="Nothing was written. Give the server more memory, or prune")
    if isinstance(error, AuthenticationError | AuthenticationWrongNumberOfArgsError):
        return StoreUnavailable(what, remedy="Nothing was written. Give the right user and password")
    if isinstance(error, NoPermissionError):
        return StoreUnavailable(what, remedy="Nothing was written. Grant the user that right")
    if said == "DB index is out of range":
        return StoreUnavailable(what, remedy="Nothing was written. Name a database that the server has")
    if said.startswith("MISCONF"):
        return StoreUnavailable(what, remedy="Nothing was written. Make room on the server's disk")
    if "WRONGTYPE" in said:
        return Corrupt(what, remedy="Another program has written to our keys; give it another prefix")
    if isinstance(error, driver.ConnectionError | driver.TimeoutError):
        return StoreAway(what, remedy=_UNREACHABLE)
    return StoreUnavailable(what, remedy=_UNREACHABLE)
