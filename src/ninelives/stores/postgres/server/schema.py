"""The schema's versions. A migration is one file and one transaction, under an advisory lock.

Many processes may start at once: one migrates, the others wait and find it done. If we die inside a
migration, the server rolls it back and drops the lock, and the next process does it again. A process of the
old version continues until its next write is refused: the migration fences its runs.
"""

from __future__ import annotations

import secrets
from contextlib import closing, suppress

import psycopg
from psycopg import errors as driver

from ninelives.core.errors import StoreError, StoreUnavailable
from ninelives.core.journal import recovery_log
from ninelives.core.rules import validation
from ninelives.stores.postgres.server.address import Address, parse
from ninelives.stores.postgres.server.open_connection import PASSING, Connection, connect, translate
from ninelives.stores.postgres.server.queries import in_schema, migrations, statements
from ninelives.stores.postgres.server.session_locks import lock_number
from ninelives.stores.shared import maintenance

_TRIES = 5


def migrate(connection: Connection, address: Address) -> tuple[int, int]:
    """Create or migrate the schema; return the versions before and after.

    Raises SchemaMismatch when it is newer than this version of ninelives.
    """
    steps = migrations()
    try:
        version = _version(connection, address)
        return (version, version) if version == len(steps) else _insist(connection, address, steps)
    except driver.InsufficientPrivilege as error:
        raise _denied(connection, address, error) from error
    except psycopg.Error as error:
        raise translate(error) from error


def open_or_make(connection: Connection, address: Address, *, known: str) -> tuple[tuple[int, int], str]:
    """Migrate; return the versions before and after, and the store's id.

    Raises StoreBroken, and creates nothing, if `known` is given and is not the store's id.
    """
    try:
        # Before the migration, which would create an empty store where the worker's has been.
        if known and _version(connection, address) == 0:
            raise validation.vanished("its schema was dropped")
    except psycopg.Error as error:
        raise translate(error) from error
    versions = migrate(connection, address)
    try:
        row = connection.execute(statements(address.schema)["read_identity"].text).fetchone()
    except psycopg.Error as error:
        raise translate(error) from error
    name = str(row[0]) if row is not None else ""
    if known not in ("", name):
        raise validation.vanished("another store has replaced it")
    return versions, name


def is_there(url: str) -> bool:
    """Return whether a schema holds a store, without creating one. Raises StoreError."""
    address = parse(url)
    with closing(connect(address)[0]) as connection:
        try:
            return _is_made(connection, address)
        except psycopg.Error as error:
            raise translate(error) from error


def drop(url: str) -> None:
    """Remove a whole deployment that is no longer used. Raises StoreError.

    If we die here, either everything is still there or everything is gone.
    """
    address = parse(url)
    with closing(connect(address, is_direct=True)[0]) as connection:
        try:
            connection.execute(statements(address.schema)["drop_schema"].text)
        except psycopg.Error as error:
            raise translate(error) from error


def _insist(connection: Connection, address: Address, steps: tuple[str, ...]) -> tuple[int, int]:
    """Migrate; try again after conflicts, since workers of the old version continue meanwhile."""
    for _ in range(_TRIES):
        with suppress(*PASSING), connection.transaction():
            return _migrate(connection, address, steps)
    with connection.transaction():
        return _migrate(connection, address, steps)


def _migrate(connection: Connection, address: Address, steps: tuple[str, ...]) -> tuple[int, int]:
    sql = statements(address.schema)
    # Held until the transaction ends: of many processes that start at once, one migrates.
    connection.execute(sql["migration_lock"].text, (lock_number(address.schema, "migration"),))
    # Read again under the lock: another process may have migrated while we waited for it.
    before = _version(connection, address)
    if before > len(steps):
        raise maintenance.unknown_version(before, 1, len(steps))
    if before == len(steps):
        return before, before
    if before > 0:
        # A single step does not compare the version (decision 13):
        # so keep writers out, and fence every owner.
        connection.execute(sql["keep_writers_out"].text)
        connection.execute(sql["fence_owners"].text)
    elif not _found(connection, address)[2]:
        connection.execute(sql["create_schema"].text)
    for step in steps[before:]:
        connection.execute(in_schema(step, address.schema))
    # CRASH: the schema is half new; the server rolls it back and the old version is whole.
    if before == 0:
        connection.execute(sql["insert_store"].text, (secrets.token_bytes(16), len(steps)))
        connection.execute(sql["insert_log_head"].text, (recovery_log.START,))
    else:
        connection.execute(sql["set_version"].text, (len(steps),))
    return before or len(steps), len(steps)


def _found(connection: Connection, address: Address) -> tuple[str, str, bool]:
    """Return the database, the user, and whether the schema exists, whichever role owns it."""
    row = connection.execute(statements(address.schema)["find_schema"].text, (address.schema,)).fetchone()
    if row is None:
        raise StoreUnavailable("PostgreSQL does not report its schemas")
    return row[0], row[1], row[2]


def _denied(connection: Connection, address: Address, error: psycopg.Error) -> StoreError:
    """Return our error for a schema that the user may not create or use; it names the missing right."""
    try:
        database, user, is_there = _found(connection, address)
    except psycopg.Error:
        return translate(error)
    name, schema, user = (f'"{one}"' for one in (database, address.schema, user))
    remedy = f"GRANT CREATE ON DATABASE {name} TO {user}, or CREATE SCHEMA {schema} AUTHORIZATION {user}"
    if is_there:
        remedy = (
            f"Schema {schema} has another owner: name another one, or make {user} owner of it and its tables"
        )
    return StoreUnavailable(translate(error).what, remedy=f"Nothing was written. {remedy}")


def _is_made(connection: Connection, address: Address) -> bool:
    found = connection.execute(statements(address.schema)["find_store"].text, (address.schema,)).fetchone()
    return found is not None and bool(found[0])


def _version(connection: Connection, address: Address) -> int:
    if not _is_made(connection, address):
        return 0
    row = connection.execute(statements(address.schema)["read_store"].text).fetchone()
    return int(row[0]) if row is not None else 0
