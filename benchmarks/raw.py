"""The limits: what a store's own engine does here, with the same durability and nothing around it."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

import apsw
import psycopg
import redis
from psycopg import sql

from benchmarks.programs.play import PAYLOAD_BYTES


def one_row_commits(folder: Path, count: int) -> float:
    """Return SQLite's commits per second: one row of 1 KiB each, WAL, synchronous=FULL, the rest default."""
    path = folder / f"raw-{os.urandom(4).hex()}.db"
    connection = apsw.Connection(str(path))
    connection.pragma("journal_mode", "wal")
    connection.pragma("synchronous", "full")
    assert (connection.pragma("journal_mode"), connection.pragma("synchronous")) == ("wal", 2)
    connection.execute("CREATE TABLE rows (id INTEGER PRIMARY KEY, body BLOB)")
    cursor = connection.cursor()
    bodies = [os.urandom(PAYLOAD_BYTES) for _ in range(count)]
    began = time.perf_counter()
    for number in range(count):
        cursor.execute("INSERT INTO rows (body) VALUES (?)", (bodies[number],))
    elapsed = time.perf_counter() - began
    connection.close()
    path.unlink()
    return count / elapsed


def postgres_commits(url: str, count: int) -> float:
    """Return PostgreSQL's commits per second: one row of 1 KiB each, prepared, autocommit, synced."""
    table = sql.Identifier(f"raw_{os.urandom(4).hex()}")
    bodies = [os.urandom(PAYLOAD_BYTES) for _ in range(count)]
    with psycopg.connect(url, autocommit=True, prepare_threshold=0) as connection:
        for setting in ("fsync", "synchronous_commit"):
            assert connection.execute(sql.SQL("SHOW {}").format(sql.Identifier(setting))).fetchone() == (
                "on",
            )
        connection.execute(
            sql.SQL(
                "CREATE TABLE {} (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, body bytea)"
            ).format(table)
        )
        insert = sql.SQL("INSERT INTO {} (body) VALUES (%b)").format(table).as_bytes(connection)
        cursor = connection.cursor()
        cursor.execute(insert, (bodies[0],))
        began = time.perf_counter()
        for number in range(count):
            cursor.execute(insert, (bodies[number],))
        elapsed = time.perf_counter() - began
        connection.execute(sql.SQL("DROP TABLE {}").format(table))
    return count / elapsed


def redis_commits(url: str, count: int) -> float:
    """Return the commits per second of Redis: one key of 1 KiB each, its log synced before every answer."""
    bodies = [os.urandom(PAYLOAD_BYTES) for _ in range(count)]
    with redis.Redis.from_url(url) as client:
        assert client.config_get("appendfsync") == {"appendfsync": "always"}
        client.ping()
        began = time.perf_counter()
        for number in range(count):
            client.set(f"raw-{number}", bodies[number])
        elapsed = time.perf_counter() - began
        client.flushall()
    return count / elapsed


def create_database(url: str, name: str) -> None:
    """Make an empty database on a server."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))


def drop_database(url: str, name: str) -> None:
    """Remove a database, and end who is connected to it; a server that is gone (Ctrl-C) has none."""
    with suppress(psycopg.OperationalError), psycopg.connect(url, autocommit=True) as connection:
        connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


def database_size(url: str) -> int:
    """Return the bytes of the database that a URL leads to."""
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute("SELECT pg_database_size(current_database())").fetchone()
    assert row is not None
    return int(row[0])
