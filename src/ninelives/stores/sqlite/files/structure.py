"""The structure of the file: that every row can be reached, by every index that should lead to it.

A row's own check says nothing about a row that is not found. What must not be missed is looked for on two
ways (checks.py); everything else rests on this: SQLite's own integrity check, made when a small store is
opened by the first of its processes, before anything is pruned, after a backup, and by `ninelives store
verify`.
"""

from __future__ import annotations

import apsw

from ninelives.core.errors import Corrupt
from ninelives.stores.sqlite.files import schema

AT_OPEN_BYTES = 32 << 20
"""Up to this size of the file its structure is checked at open: a tenth of a second or two."""
_TABLES = "SELECT name FROM sqlite_schema WHERE type = 'table'"


def faults(connection: apsw.Connection, limit: int = 50) -> list[str]:
    """Return what SQLite finds wrong with the structure; of guests' tables nothing is asked."""
    version = int(connection.pragma("user_version"))
    steps = schema.migrations()[:version]
    if not schema.guests(connection, steps):
        return _told(connection, f"PRAGMA integrity_check({limit})")
    ours = schema.tables(steps) & {name for (name,) in connection.execute(_TABLES)}
    return [line for table in sorted(ours) for line in _told(connection, f"PRAGMA integrity_check({table})")]


def require_sound(connection: apsw.Connection, *tables: str) -> None:
    """Check the structure of the file, or of some tables with their indexes. Raises Corrupt."""
    if tables:
        found = [line for table in tables for line in _told(connection, f"PRAGMA integrity_check({table})")]
    else:
        found = faults(connection, 1)
    if found:
        raise Corrupt(
            f"the database's structure is damaged: {found[0][:300]}",
            remedy="Nothing of it was used. Restore the store from a backup",
        )


def _told(connection: apsw.Connection, question: str) -> list[str]:
    return [str(line) for (line,) in connection.execute(question) if line != "ok"]
