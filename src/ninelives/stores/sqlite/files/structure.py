"""The structure of the file: every row can be reached through every index that should lead to it.

A row's check says nothing about a row that is not found. Rows that must never be missed are searched for by
two indexes (checks.py). Everything else relies on SQLite's integrity check. It runs when the first process
opens a small store, before anything is pruned, after a backup, and in `ninelives store verify`.
"""

from __future__ import annotations

import apsw

from ninelives.core.errors import Corrupt
from ninelives.stores.sqlite.files import schema

AT_OPEN_BYTES = 32 << 20
"""Up to this file size the structure is checked when the store is opened: a tenth of a second or two."""
_TABLES = "SELECT name FROM sqlite_schema WHERE type = 'table'"


def faults(connection: apsw.Connection, limit: int = 50) -> list[str]:
    """Return SQLite's findings about the structure; tables of other programs are not checked."""
    version = int(connection.pragma("user_version"))
    steps = schema.migrations()[:version]
    if not schema.guests(connection, steps):
        return _findings(connection, f"PRAGMA integrity_check({limit})")
    ours = schema.tables(steps) & {name for (name,) in connection.execute(_TABLES)}
    return [
        line for table in sorted(ours) for line in _findings(connection, f"PRAGMA integrity_check({table})")
    ]


def require_sound(connection: apsw.Connection, *tables: str) -> None:
    """Check the structure of the file, or of some tables with their indexes. Raises Corrupt."""
    if tables:
        found = [
            line for table in tables for line in _findings(connection, f"PRAGMA integrity_check({table})")
        ]
    else:
        found = faults(connection, 1)
    if found:
        raise Corrupt(
            f"the database's structure is damaged: {found[0][:300]}",
            remedy="None of it was used. Restore the store from a backup",
        )


def _findings(connection: apsw.Connection, question: str) -> list[str]:
    return [str(line) for (line,) in connection.execute(question) if line != "ok"]
