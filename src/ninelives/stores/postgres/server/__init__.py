"""The server: connections, statements, schema, locks and wake-ups.

- `pool`, `connection`, `open_connection`, `binary`, `address`, `silence`
- `queries` (with `queries.sql`), `schema` (with `migrations/`)
- `session_locks`, `death_watch`, `wakeups`; `vacuum`
"""
