"""The files of a SQLite store: the database, its anchor, locks and sockets.

- `database`: the open files; `connection`, `paths`, `schema` (with `migrations/`), `structure`
- `write_queue`: which process writes next; `checkpointer`: moves the log into the database; `anchor`:
  detects a lost tail
- `session_locks`, `death_watch`: which workers live; `wakeups`: datagrams between processes; `backups`
- `verification`: read and check every page, row, chain and blob
"""
