"""The schema's versions. A migration is one file and one transaction.

If we die inside a migration, SQLite rolls it back and the next start does it again: the version is
written in the same transaction. A file whose schema is not exactly what the migrations make (a
trigger, a view, a table of somebody else) is refused: what is in a file must never run.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.resources import files

import apsw

from ninelives.backends.sqlite.queries import SQL
from ninelives.core.errors import SchemaMismatch

_OBJECTS = "SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY type, name"


@cache
def migrations() -> tuple[str, ...]:
    """Return the migrations in order; the n-th makes version n."""
    folder = files(__package__).joinpath("migrations")
    return tuple(
        file.read_text(encoding="utf-8")
        for file in sorted(folder.iterdir(), key=lambda file: file.name)
        if file.name.endswith(".sql")
    )


def migrate(connection: apsw.Connection, steps: Sequence[str]) -> tuple[int, int]:
    """Bring the schema up to the last step; returns the versions before and after.

    Raises SchemaMismatch when the file is newer than the steps. The caller holds the writers' lock.
    """
    before = version = int(connection.pragma("user_version"))
    if not 1 <= version <= len(steps):
        raise SchemaMismatch(
            f"the database has schema version {version}; this Nine Lives knows 1 to {len(steps)}",
            remedy="Upgrade ninelives, or open the store with the version that wrote it",
        )
    check(connection, steps[:version])  # before anything runs that the file could have a say in
    for number, step in enumerate(steps[version:], version + 1):
        connection.execute("BEGIN IMMEDIATE")
        try:
            connection.execute(step)
            # CRASH: the schema is half new; the journal is thrown away and the old version is whole.
            connection.pragma("user_version", number)
            connection.execute(SQL["set_version"], (number,))
            connection.execute("COMMIT")
        except BaseException:
            connection.execute("ROLLBACK")
            raise
        version = number
    return before, version


def create(connection: apsw.Connection, steps: Sequence[str], store_id: bytes) -> None:
    """Make the schema of a new database."""
    connection.execute("BEGIN IMMEDIATE")
    for step in steps:
        connection.execute(step)
    connection.execute(SQL["insert_store"], (store_id, len(steps)))
    connection.pragma("user_version", len(steps))
    connection.execute("COMMIT")


def check(connection: apsw.Connection, steps: Sequence[str]) -> None:
    """Check that the schema is exactly what the steps make.

    Raises SchemaMismatch naming what is foreign, missing or changed.
    """
    found = {(kind, name): (table, sql) for kind, name, table, sql in connection.execute(_OBJECTS)}
    expected = _expected(tuple(steps))
    if found == expected:
        return
    odd = sorted(
        f"{kind} {name}"
        for kind, name in found.keys() | expected.keys()
        if found.get((kind, name)) != expected.get((kind, name))
    )
    raise SchemaMismatch(
        f"the database's schema is not ours: {', '.join(odd[:5])}",
        remedy="Somebody changed the file with another program; restore it from a backup",
    )


@cache
def _expected(steps: tuple[str, ...]) -> dict[tuple[str, str], tuple[str, str]]:
    model = apsw.Connection(":memory:")
    try:
        for step in steps:
            model.execute(step)
        return {(kind, name): (table, sql) for kind, name, table, sql in model.execute(_OBJECTS)}
    finally:
        model.close()
