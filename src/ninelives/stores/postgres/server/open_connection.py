"""Connections: opened in one way, the server's settings checked each time, errors translated."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable

import psycopg
from psycopg import errors as driver

from ninelives.core.errors import (
    BadRecord,
    Corrupt,
    SchemaMismatch,
    StoreAway,
    StoreError,
    StoreUnavailable,
    StoreUnsafe,
)
from ninelives.stores.postgres.server.address import Address
from ninelives.stores.postgres.server.queries import statements
from ninelives.stores.postgres.server.silence import WatchedConnection

Connection = WatchedConnection
_LEAST_VERSION = 130000
_OPTIONS = {
    "application_name": "ninelives",
    "client_encoding": "UTF8",
    "connect_timeout": "5",
    # The kernel finds a dead host within 25 s; a device that answers for it is found by silence.py.
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    # Without it, what we sent to a host that vanished is sent again for a quarter of an hour.
    "tcp_user_timeout": "15000",
}
logging.getLogger("psycopg").addHandler(logging.NullHandler())  # our errors report what matters of it
_REFUSALS = (
    (re.compile(r'database ".*" does not exist'), "Create the database, or name another in the URL"),
    (re.compile(r'role ".*" does not exist'), "Create the role, or name another user in the URL"),
    (
        re.compile(r"(password|authentication) failed|no password supplied"),
        "Give the right user and password, in the URL or as libpq finds them (PGPASSWORD, ~/.pgpass)",
    ),
    (
        re.compile(r"pg_hba\.conf (entry|rejects)"),
        "Let its pg_hba.conf admit this user from this host",
    ),
    (re.compile(r"permission denied for database"), "Grant the user CONNECT on the database"),
)
"""Why a server that answers refuses the connection, and what to do; waiting does not help."""
_FULL = re.compile(r"too many (connections|clients)|remaining connection slots|no more connections allowed")
_NO_ROOM = (
    "Nothing was written. Raise max_connections or the role's limit: a worker process takes up to"
    " nine connections, and works with fewer"
)
_REMEDIES = {
    driver.DiskFull: "Make room on the server's disk",
    driver.InsufficientPrivilege: "Grant the user that right",
    driver.InvalidPassword: "Check the user and the password",
    driver.ReadOnlySqlTransaction: "It may only read: ALTER ROLE … SET default_transaction_read_only = off",
    driver.QueryCanceled: "Give this user more time: ALTER ROLE … SET statement_timeout = 0",
    driver.LockNotAvailable: "Another transaction holds a lock: see pg_stat_activity and pg_locks",
}
"""What to do about a statement that the server refused."""
# Unique violations too: a row that is not there cannot be
# locked, so two inserts of one key collide (decision 10).
PASSING = (driver.DeadlockDetected, driver.SerializationFailure, driver.UniqueViolation)
"""The transaction was rolled back because of another one; run again, it sees that one's rows."""


def connect(
    address: Address, *, is_direct: bool = False, watch: Callable[[Connection], None] | None = None
) -> tuple[Connection, dict[str, str]]:
    """Open a connection to a server that keeps what it acknowledges; with `is_direct`, past any pooler.

    Returns it, and the unsafe settings of the server that the URL accepts. `watch` gets the connection before
    any statement is sent on it.
    Raises StoreUnsafe that names the setting that could lose data; StoreUnavailable.
    """
    # Locks and LISTEN belong to a connection; a transaction pooler hands that to others after each COMMIT.
    url = address.direct if is_direct and address.direct is not None else address.libpq
    given = psycopg.conninfo.conninfo_to_dict(url)
    try:
        connection = WatchedConnection.connect(
            **(_OPTIONS | given),  # type: ignore[arg-type]
            autocommit=True,
            prepare_threshold=None,  # we prepare statements ourselves (see connection.py)
            cursor_factory=psycopg.RawCursor,
        )
    except psycopg.Error as error:
        raise _refused(error) from error
    try:
        if watch is not None:
            # Before the first statement: the check below may be what a silent server never answers.
            watch(connection)
        risks = check(connection, address, is_own=is_direct or not address.is_pooled)
    except BaseException:
        connection.close()
        raise
    return connection, risks


def check(connection: Connection, address: Address, *, is_own: bool) -> dict[str, str]:
    """Check the server's settings, and set those of this connection; return the accepted risks."""
    sql = statements(address.schema)
    try:
        row = connection.execute(sql["settings"].text).fetchone()
        if is_own:  # through a pooler, another client's next transaction would get them
            connection.execute(sql["tune"].text)
    except psycopg.Error as error:
        raise translate(error) from error
    if row is None:
        raise StoreUnavailable("PostgreSQL does not report its settings")
    version, fsync, full_page_writes, synchronous_commit, encoding, is_replica = row
    if version < _LEAST_VERSION:
        raise StoreUnsafe(f"PostgreSQL {version // 10000} is too old", remedy="Use PostgreSQL 13 or newer")
    # A standby answers reads: without this, the mistake would show only at the first write.
    if is_replica:
        raise StoreUnsafe("the server is a replica: nothing can be written to it", remedy="Name the primary")
    if encoding != "UTF8":
        raise StoreUnsafe(f"the database's encoding is {encoding}", remedy="Use a database with UTF8")
    lossy = {
        "fsync": fsync == "off",
        "full_page_writes": full_page_writes == "off",
        "synchronous_commit": synchronous_commit == "off",
    }
    risks: dict[str, str] = {}
    for setting, is_lossy in lossy.items():
        if not is_lossy:
            continue
        what = f"the server runs with {setting} = off: it may lose what it has acknowledged"
        if setting not in address.unsafe:
            raise StoreUnsafe(
                what,
                remedy=f"Set {setting} = on, or add unsafe={setting} to the URL if losses are acceptable",
            )
        risks[what] = f"Set {setting} = on; until then a non-resumable action may happen twice"
    return risks


def is_lost(connection: Connection) -> bool:
    """Return whether a connection can no longer be used."""
    return connection.closed or connection.broken


def _refused(error: psycopg.Error) -> StoreUnavailable:
    """Return our error for a connection that failed; libpq gives the reason only as text."""
    said = " ".join(str(error).split()).rstrip("?") or type(error).__name__  # libpq adds a question
    what = f"PostgreSQL: {said}"
    # Waiting may help here: a worker that ends frees its connections.
    if _FULL.search(said):
        return StoreAway(what, remedy=_NO_ROOM)
    for words, remedy in _REFUSALS:
        if words.search(said):
            return StoreUnavailable(what, remedy=f"Nothing was written. {remedy}")
    return StoreAway(what, remedy="Nothing was written. Check that the server runs and can be reached")


def translate(error: psycopg.Error) -> StoreError:
    """Return our error for one of the driver's; its transaction was rolled back, or never begun."""
    what = f"PostgreSQL: {str(error).strip() or type(error).__name__}"
    state = error.sqlstate or ""
    if isinstance(error, driver.UndefinedTable | driver.UndefinedColumn | driver.InvalidSchemaName):
        return SchemaMismatch(what, remedy="Another version, or another program, has changed the schema")
    if state.startswith("22") or isinstance(error, psycopg.DataError):
        return BadRecord(what)
    if state in ("XX001", "XX002"):
        return Corrupt(what, remedy="The server's files are damaged; restore them from a backup")
    for kind, remedy in _REMEDIES.items():
        if isinstance(error, kind):
            return StoreUnavailable(what, remedy=f"Nothing was written. {remedy}")
    return StoreUnavailable(what, remedy="Nothing was written. Check that the server runs and can be reached")
