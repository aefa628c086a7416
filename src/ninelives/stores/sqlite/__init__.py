"""The embedded store, on SQLite."""

from ninelives.stores.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
