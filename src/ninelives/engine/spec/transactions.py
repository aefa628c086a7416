"""Transactional actions: an effect in the user's own database commits together with its record.

The body runs inside one transaction of the connection that `transaction=` returns. A row in the table
`ninelives_done`, created on demand in the same database, is inserted before the body and filled with its
result after it; the effect and the row commit together or not at all. Any later attempt under the same key,
after a crash or beside a zombie worker, finds the row and returns its result: the effect exists exactly once.
If we die anywhere before the commit, the database rolls both back, and the body runs again.

Connections of sqlite3, apsw and psycopg (plain and async) are recognised by their attributes; none of these
libraries is imported. A connection is closed afterwards; to lend one instead, return a context manager.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final

from ninelives.core.errors import InDoubt, UsageError
from ninelives.core.values.codec import Codec
from ninelives.engine.context import FRAME
from ninelives.engine.spec.functions import is_async

_TABLE: Final = "CREATE TABLE IF NOT EXISTS ninelives_done (key TEXT PRIMARY KEY, value TEXT)"
_CLAIM: Final = (
    "INSERT INTO ninelives_done (key, value) VALUES ({0}, NULL) ON CONFLICT (key) DO NOTHING RETURNING key"
)
_FIND: Final = "SELECT value FROM ninelives_done WHERE key = {0}"
_FILL: Final = "UPDATE ninelives_done SET value = {0} WHERE key = {0}"

Transaction = Callable[[], Any]


def enclose(function: Callable[..., Any], transaction: Transaction, codec: Codec) -> Callable[..., Any]:
    """Wrap a body: pass it a connection, inside a transaction that also records that it was done."""
    if is_async(function):

        @functools.wraps(function)
        async def perform(*args: Any, **kwargs: Any) -> Any:
            async with _connected_async(transaction) as conn:
                if inspect.iscoroutinefunction(conn.execute):
                    return await _run_async(conn, codec, lambda: function(conn, *args, **kwargs))
                with _transaction(conn):
                    mark = _mark(conn)
                    found = _claim(conn, mark)
                    if found is not None:
                        return codec.recall(found)
                    return _fill(conn, mark, codec, await function(conn, *args, **kwargs))

        return perform

    @functools.wraps(function)
    def perform_plain(*args: Any, **kwargs: Any) -> Any:
        with _connected(transaction) as conn, _transaction(conn):
            mark = _mark(conn)
            found = _claim(conn, mark)
            if found is not None:
                return codec.recall(found)
            return _fill(conn, mark, codec, function(conn, *args, **kwargs))

    return perform_plain


def without_connection(signature: inspect.Signature, name: str) -> inspect.Signature:
    """Return the signature without its first parameter `conn`. Raises UsageError if it has none."""
    parameters = list(signature.parameters.values())
    if not parameters or parameters[0].name != "conn":
        raise UsageError(
            f"{name}: transaction= gives the body its connection, and its first parameter is not conn",
            remedy=f"Declare it as {name}(conn, ...); callers leave conn out",
        )
    return signature.replace(parameters=parameters[1:])


def _key() -> str | None:
    """Return the key of the current action; None outside a run."""
    frame = FRAME.get()
    return frame.position.key() if frame is not None else None


# ------------------------------------------------------------------------------------------- the record


def _mark(conn: Any) -> str:
    return "%s" if hasattr(conn, "transaction") else "?"


def _claim(conn: Any, mark: str) -> bytes | None:
    """Insert our row, blocking while another transaction has it; return the result of an earlier one."""
    key = _key()
    if key is None:
        return None
    conn.execute(_TABLE)
    if conn.execute(_CLAIM.format(mark), (key,)).fetchall():
        return None
    return _found(conn.execute(_FIND.format(mark), (key,)).fetchall(), key)


def _found(rows: Any, key: str) -> bytes:
    value = rows[0][0] if rows else None
    if value is None:
        raise InDoubt(
            f"an earlier body under the key {key!r} ended its transaction by itself",
            remedy="Check what it did, then fill in or delete its row in ninelives_done",
        )
    return str(value).encode()


def _fill(conn: Any, mark: str, codec: Codec, made: Any) -> Any:
    key = _key()
    # The effect is committed without our row: the next attempt could not know that it was done.
    if not hasattr(conn, "transaction") and not conn.in_transaction:
        raise UsageError(
            "the body ended the transaction that its effect was to commit with",
            remedy="Leave commit and rollback to the action (executescript commits, too)",
        )
    data, value = codec.round(made)
    if key is not None:
        conn.execute(_FILL.format(mark), (data.decode(), key))
    return value


async def _run_async(conn: Any, codec: Codec, body: Callable[[], Any]) -> Any:
    key = _key()
    _require_idle(conn)
    async with conn.transaction():
        if key is not None:
            await conn.execute(_TABLE)
            claimed = await (await conn.execute(_CLAIM.format("%s"), (key,))).fetchall()
            if not claimed:
                rows = await (await conn.execute(_FIND.format("%s"), (key,))).fetchall()
                return codec.recall(_found(rows, key))
        data, value = codec.round(await body())
        if key is not None:
            await conn.execute(_FILL.format("%s"), (data.decode(), key))
        return value


# -------------------------------------------------------------------------------------- the transaction


@contextmanager
def _transaction(conn: Any) -> Iterator[None]:
    """Run the block in one transaction, which the body must not end."""
    if hasattr(conn, "transaction"):  # psycopg: commits when the block is left, and refuses commit() inside
        _require_idle(conn)
        with conn.transaction():
            yield
        return
    is_implicit = getattr(conn, "autocommit", None) is False  # sqlite3 that is always in a transaction
    if conn.in_transaction and not is_implicit:
        raise _busy()
    if not conn.in_transaction:
        # IMMEDIATE: another attempt under the same key waits here, before its body, and not at the commit.
        conn.execute("BEGIN IMMEDIATE")
    try:
        yield
        # CRASH: the effect and our row are in the transaction, and it is not committed: neither happened.
        if is_implicit:
            conn.commit()
        else:
            conn.execute("COMMIT")
        # CRASH: both are durable there, and not in our journal: the next attempt finds the row.
    except BaseException:
        if conn.in_transaction:
            conn.execute("ROLLBACK")
        raise


def _require_idle(conn: Any) -> None:
    if conn.info.transaction_status.name != "IDLE":
        raise _busy()


def _busy() -> UsageError:
    return UsageError(
        "the connection that transaction= gave is in a transaction already",
        remedy="Give each action a connection of its own",
    )


@contextmanager
def _connected(transaction: Transaction) -> Iterator[Any]:
    given = transaction()
    if not hasattr(given, "execute"):
        with given as conn:
            yield conn
        return
    try:
        yield given
    finally:
        given.close()


@asynccontextmanager
async def _connected_async(transaction: Transaction) -> AsyncIterator[Any]:
    given = transaction()
    if inspect.isawaitable(given):
        given = await given
    if not hasattr(given, "execute"):
        if hasattr(given, "__aenter__"):
            async with given as conn:
                yield conn
            return
        with given as conn:
            yield conn
        return
    try:
        yield given
    finally:
        closing = given.close()
        if inspect.isawaitable(closing):
            await closing
