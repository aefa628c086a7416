"""The store for several machines: a PostgreSQL server, through psycopg 3."""

from ninelives.stores.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
