"""The schema's versions. A migration is one file and one transaction.

If we die inside a migration, SQLite rolls it back and the next start does it again: the version is written in
the same transaction. Other programs may keep tables in the file (Litestream keeps two); they are guests, and
we never touch them: nothing of theirs runs unless a statement names it. Anything that changes our own tables
(a trigger on them, an index, a column) is refused: code that is in a file must never run.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from functools import cache

import apsw

from ninelives.core.errors import SchemaMismatch
from ninelives.stores.shared import maintenance
from ninelives.stores.sqlite import checks
from ninelives.stores.sqlite.queries import SQL

_OBJECTS = "SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY type, name"


def migrations() -> tuple[str, ...]:
    """Return the migrations in order; the n-th makes version n."""
    return maintenance.migrations(__package__)


def migrate(connection: apsw.Connection, steps: Sequence[str]) -> tuple[int, int]:
    """Bring the schema up to the last step; return the versions before and after.

    Raises SchemaMismatch when the file is newer than the steps. The caller holds the writers' lock.
    """
    before = version = int(connection.pragma("user_version"))
    # A newer file is refused before anything is written: old code does not know what its rows mean.
    if not 1 <= version <= len(steps):
        raise maintenance.unknown_version(version, 1, len(steps))
    check(connection, steps[:version])  # before running anything that the file could influence
    for number, step in enumerate(steps[version:], version + 1):
        connection.execute("BEGIN IMMEDIATE")
        try:
            connection.execute(step)
            # CRASH: the schema is half new; SQLite rolls it back and the old version is whole.
            connection.pragma("user_version", number)
            # Two copies of the version: the pragma opens the file, the row is compared by every commit.
            connection.execute(SQL["set_version"], (number,))
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:  # on a full disk SQLite has already rolled it back
                connection.execute("ROLLBACK")
            raise
        version = number
    return before, version


def create(connection: apsw.Connection, steps: Sequence[str], store_id: bytes) -> None:
    """Create the schema of a new database."""
    connection.execute("BEGIN IMMEDIATE")
    for step in steps:
        connection.execute(step)
    connection.execute(SQL["insert_store"], checks.sealed("store", (store_id, len(steps), 0, 0, 0, b"")))
    connection.pragma("user_version", len(steps))
    connection.execute("COMMIT")


def check(connection: apsw.Connection, steps: Sequence[str]) -> None:
    """Check that our part of the schema is exactly what the steps make.

    Raises SchemaMismatch that names what is missing, changed, or added to our tables.
    """
    found = {(kind, name): (table, sql) for kind, name, table, sql in connection.execute(_OBJECTS)}
    expected = _expected(tuple(steps))
    if found == expected:
        return
    ours = {table for table, _ in expected.values()}
    odd = sorted(
        f"{kind} {name}"
        for kind, name in found.keys() | expected.keys()
        if found.get((kind, name)) != expected.get((kind, name))
        and ((kind, name) in expected or _touches(connection, ours, kind, name, found[kind, name]))
    )
    if odd:
        raise SchemaMismatch(
            f"the database's schema is not ours: {', '.join(odd[:5])}",
            remedy="Another program changed our tables: undo it, or restore the store from a backup",
        )


def guests(connection: apsw.Connection, steps: Sequence[str]) -> list[str]:
    """Return the names of what is in the file and is not ours."""
    expected = _expected(tuple(steps))
    return [name for kind, name, _, _ in connection.execute(_OBJECTS) if (kind, name) not in expected]


def tables(steps: Sequence[str]) -> set[str]:
    """Return the names of our tables."""
    return {name for kind, name in _expected(tuple(steps)) if kind == "table"}


def _touches(
    connection: apsw.Connection, ours: Collection[str], kind: str, name: str, made: tuple[str, str | None]
) -> bool:
    """Return whether a guest affects our tables.

    The table that the schema gives for a trigger or an index can be forged. So a trigger must not even name
    one of ours, and for indexes we ask SQLite itself.
    """
    table, sql = made
    if table in ours:
        return True
    if kind == "trigger":
        return any(re.search(rf"\b{one}\b", sql or "", re.IGNORECASE) for one in ours)
    if kind == "index":
        listed = "SELECT name FROM pragma_index_list(?)"
        return any(name in {row[0] for row in connection.execute(listed, (one,))} for one in ours)
    return False


@cache
def _expected(steps: tuple[str, ...]) -> dict[tuple[str, str], tuple[str, str]]:
    # The steps themselves say what is expected: a list beside them would be forgotten in the next migration.
    model = apsw.Connection(":memory:")
    checks.register(model)
    try:
        for step in steps:
            model.execute(step)
        return {(kind, name): (table, sql) for kind, name, table, sql in model.execute(_OBJECTS)}
    finally:
        model.close()
