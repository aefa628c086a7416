"""Whether a schema holds a store, checked without creating one."""

from __future__ import annotations

from contextlib import closing

import psycopg

from ninelives.stores.postgres.server.address import parse
from ninelives.stores.postgres.server.open_connection import connect, translate
from ninelives.stores.postgres.server.queries import statements


def is_there(url: str) -> bool:
    """Return whether a store exists. Raises StoreError."""
    address = parse(url)
    with closing(connect(address)[0]) as connection:
        try:
            sql = statements(address.schema)["find_store"].text
            found = connection.execute(sql, (address.schema,)).fetchone()
        except psycopg.Error as error:
            raise translate(error) from error
    return found is not None and bool(found[0])
