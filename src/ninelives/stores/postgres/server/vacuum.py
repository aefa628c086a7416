"""Vacuum the store's tables, while they are in use. If we die here: the server stops where it is."""

from __future__ import annotations

import psycopg

from ninelives.stores.postgres.server.address import parse
from ninelives.stores.postgres.server.open_connection import Connection, connect, translate
from ninelives.stores.postgres.server.queries import statements


def vacuum(url: str) -> tuple[int, int]:
    """Vacuum all tables; return how many bytes they took before and after. Raises StoreError."""
    address = parse(url)
    connection, _ = connect(address, is_direct=True)
    try:
        before = _size(connection, address.schema)
        for (table,) in connection.execute(
            statements(address.schema)["our_tables"].text, (address.schema,)
        ).fetchall():
            connection.execute(f"VACUUM (ANALYZE) {table}".encode())
        return before, _size(connection, address.schema)
    except psycopg.Error as error:
        raise translate(error) from error
    finally:
        connection.close()


def _size(connection: Connection, schema: str) -> int:
    row = connection.execute(statements(schema)["used_bytes"].text, (schema,)).fetchone()
    return int(row[0]) if row is not None else 0
