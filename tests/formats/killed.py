"""Opening a store, and dying at one of the statements or calls of the server that this takes.

A task of the fork server (`tests.crash.forkserver`).
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

from ninelives.stores.open import open_store


def open_killed(url: str, at: int = 0) -> int:
    """Open a store, dying at a statement or a call; returns how many there were."""
    count = 0

    def called(*_: object) -> None:
        nonlocal count
        count += 1
        if count == at:
            os.kill(os.getpid(), signal.SIGKILL)

    _HOOKS[url.partition(":")[0]](called)
    store = open_store(url)
    store.close()
    return count


def _sqlite(called: Callable[..., None]) -> None:
    """Be called before each statement, those of a migration's file one by one."""
    import apsw

    def trace(connection: apsw.Connection) -> None:
        connection.trace_v2(apsw.SQLITE_TRACE_STMT, called)

    apsw.connection_hooks.append(trace)


def _postgresql(called: Callable[..., None]) -> None:
    """Be called before and after each statement."""
    import psycopg

    execute = psycopg.Connection.execute

    def counted(self: Any, *args: Any, **kwargs: Any) -> Any:
        called()
        answer = execute(self, *args, **kwargs)
        called()
        return answer

    psycopg.Connection.execute = counted  # type: ignore[method-assign]


def _redis(called: Callable[..., None]) -> None:
    """Be called after each command or script: before it is as after the one before."""
    from ninelives.stores.redis.server.connection import ServerConnection

    ask = ServerConnection.ask

    def counted(self: Any, *args: Any) -> Any:
        answer = ask(self, *args)
        called()
        return answer

    ServerConnection.ask = counted  # type: ignore[assignment, method-assign]


_HOOKS = {"sqlite": _sqlite, "postgresql": _postgresql, "redis": _redis}
