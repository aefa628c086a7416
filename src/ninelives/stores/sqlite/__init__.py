"""The embedded store, on SQLite.

- `store`: the class; `commits`: the write path; `transaction`, `tables`: rows for rules of `stores.shared`
- `claims`: create and claim runs; `sessions`; `lookups`: rows by name; `journals`, `recovery_log`: chains
- `checks`: a check in every row; `halves`: rows of records; `queries` (with `queries.sql`)
- `maintenance`: measure, verify, prune; `salvage`; `files`: the database, its anchor, locks and sockets
"""

from ninelives.stores.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
