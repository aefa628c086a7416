"""Where a plain text could have got to: every byte of a store, in every form that it may take there."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import apsw

from tests.crash.stores import address, is_file

CORE = "canary4f71c2e9b0a8"
CANARY = f"'\"\\-ü-{CORE}-ü"
"""A text that has to be escaped nearly everywhere, around one that is not: that is searched for."""


def forms() -> dict[str, bytes]:
    """Return the canary's core as it would stand in a file: as text, in hex, and in base64 at each offset."""
    raw = CORE.encode()
    found = {"plain": raw, "hex": raw.hex().encode(), "utf-16": CORE.encode("utf-16-le")}
    found["HEX"] = found["hex"].upper()
    for skipped in range(3):
        encoded = base64.b64encode(b"\0" * skipped + raw)
        found[f"base64+{skipped}"] = encoded[4 if skipped else 0 : len(encoded) // 4 * 4 - 4]
    return found


def leaked(where: Iterable[tuple[str, bytes]]) -> list[str]:
    """Return the names of the places that have the canary, each with its form and what surrounds it."""
    found = []
    for name, data in where:
        for form, sought in forms().items():
            at = data.find(sought)
            if at >= 0:
                found.append(f"{name} ({form}): {data[max(0, at - 80) : at + 60]!r}")
    return found


def contents(home: Path) -> Iterator[tuple[str, bytes]]:
    """Yield all that the store of a directory keeps: its files or its server's rows, and blobs unpacked."""
    for file in sorted(home.rglob("*")):
        if file.is_file():
            yield file.name, file.read_bytes()
    if is_file(home):
        yield from _of_sqlite(home / "runs.db")
    elif address(home).startswith("postgres"):
        yield from _of_postgres(address(home))
    else:
        yield from _of_redis(address(home))


def _cell(name: str, value: object) -> Iterator[tuple[str, bytes]]:
    data = value if isinstance(value, bytes) else str(value).encode(errors="surrogateescape")
    yield name, data
    for start in (0, 1):  # a packed blob begins with its method
        try:
            yield f"{name}, unpacked", zlib.decompress(data[start:])
        except zlib.error:
            continue


def _of_sqlite(file: Path) -> Iterator[tuple[str, bytes]]:
    database = apsw.Connection(str(file), flags=apsw.SQLITE_OPEN_READONLY)
    tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    for table in tables:
        for row in database.execute(f'SELECT * FROM "{table}"'):
            for value in row:
                yield from _cell(table, value)
    database.close()


def _of_postgres(url: str) -> Iterator[tuple[str, bytes]]:
    import psycopg

    url, _, schema = url.partition("?schema=")
    with psycopg.connect(url) as connection:
        tables = connection.execute(
            "SELECT tablename FROM pg_tables WHERE schemaname = %s", (schema,)
        ).fetchall()
        for (table,) in tables:
            for row in connection.execute(f'SELECT * FROM "{schema}"."{table}"'.encode()):
                for value in row:
                    yield from _cell(table, value)


def _of_redis(url: str) -> Iterator[tuple[str, bytes]]:
    import redis

    parts, prefix = urlsplit(url), url.partition("?prefix=")[2]
    client: Any = redis.Redis(port=parts.port or 6379)
    reads: dict[bytes, Any] = {
        b"string": lambda key: [client.get(key)],
        b"hash": lambda key: [part for pair in client.hgetall(key).items() for part in pair],
        b"zset": lambda key: client.zrange(key, 0, -1),
        b"set": client.smembers,
        b"list": lambda key: client.lrange(key, 0, -1),
        b"stream": lambda key: [json.dumps(client.xrange(key), default=repr).encode()],
    }
    for key in client.scan_iter(f"*{prefix}*"):
        for value in reads[client.type(key)](key):
            yield from _cell(key.decode(errors="replace"), value)
    client.close()
