"""The store for several machines: a PostgreSQL server, through psycopg 3.

- `store`: the class; `commits`: the write path; `transaction`, `tables`: rows for rules of `stores.shared`
- `claims`: create and claim runs; `sessions`; `lookups`: rows by name; `journals`, `recovery_log`: chains
- `maintenance`: measure, verify, prune; `server`: connections, statements, schema, locks and wake-ups
"""

from ninelives.stores.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
