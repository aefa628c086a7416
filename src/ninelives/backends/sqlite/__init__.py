"""The embedded store, on SQLite."""

from ninelives.backends.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
