"""The store of many machines: a PostgreSQL server, by psycopg 3."""

from ninelives.stores.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
