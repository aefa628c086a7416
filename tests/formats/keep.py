"""Stores as test data: kept as a compressed file, and put back on a fresh server or in a fresh folder.

SQLite: the database and its anchor. PostgreSQL: what `pg_dump` says. Redis: one JSON object per key, by type.
"""

from __future__ import annotations

import base64
import gzip
import json
import secrets
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAME = "kept_format"
"""The schema, or the prefix, under which a store is made and kept."""


@contextmanager
def place(kind: str) -> Iterator[str]:
    """Yield the URL of a fresh store of a kind, on a server of its own where it needs one."""
    if kind == "sqlite":
        with tempfile.TemporaryDirectory() as home:
            yield f"sqlite:///{home}/runs.db"
        return
    from tests.servers.postgres import PostgresServer
    from tests.servers.valkey import ValkeyServer

    server = PostgresServer() if kind == "postgresql" else ValkeyServer()
    try:
        yield f"{server.url}?{'schema' if kind == 'postgresql' else 'prefix'}={NAME}"
    finally:
        server.remove()


def keep(kind: str, url: str, folder: Path) -> None:
    """Keep a store in a folder."""
    {"sqlite": _keep_sqlite, "postgresql": _keep_postgresql, "redis": _keep_redis}[kind](url, folder)


def put_back(kind: str, folder: Path, home: Path) -> str:
    """Put a kept store back; returns its URL. Who asks removes it, with `remove`."""
    if kind == "sqlite":
        with tarfile.open(folder / "sqlite.tar.gz") as packed:
            packed.extractall(home, filter="data")
        for file in home.iterdir():
            file.chmod(0o600)
        return f"sqlite:///{home}/runs.db"
    name = f"formats_{secrets.token_hex(6)}"
    return (_load_postgresql if kind == "postgresql" else _load_redis)(folder, name)


def _keep_sqlite(url: str, folder: Path) -> None:
    database = Path(url.removeprefix("sqlite:///"))
    files = sorted(file for file in database.parent.iterdir() if file.is_file())
    with (
        (folder / "sqlite.tar.gz").open("wb") as out,
        gzip.GzipFile("", "wb", 9, out, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w") as tar,
    ):
        for file in files:
            if not file.name.endswith("-shm"):
                tar.add(file, file.name)


def _keep_postgresql(url: str, folder: Path) -> None:
    from importlib.util import find_spec

    found = find_spec("pgserver")
    assert found is not None
    assert found.origin is not None
    dump = Path(found.origin).parent / "pginstall/bin/pg_dump"
    address = url.partition("?")[0]
    text = subprocess.run(
        [dump, "--no-owner", "--inserts", f"--schema={NAME}", address], check=True, capture_output=True
    ).stdout
    (folder / "postgresql.sql.gz").write_bytes(gzip.compress(text, mtime=0))


def _load_postgresql(folder: Path, name: str) -> str:
    import psycopg

    from tests.servers.postgres import shared_url

    text = gzip.decompress((folder / "postgresql.sql.gz").read_bytes()).decode().replace(NAME, name)
    lines = [
        line for line in text.splitlines() if not line.startswith(("SET ", "SELECT pg_catalog.set_config"))
    ]
    with psycopg.connect(shared_url(), autocommit=True) as connection:
        connection.execute("\n".join(lines).encode())
    return f"{shared_url()}?schema={name}"


def _keep_redis(url: str, folder: Path) -> None:
    import redis

    client = redis.Redis.from_url(url.partition("?")[0])
    lines = [json.dumps(_key(client, name), sort_keys=True) for name in sorted(client.scan_iter(count=1000))]
    (folder / "redis.jsonl.gz").write_bytes(gzip.compress("\n".join(lines).encode(), mtime=0))


def _key(client: Any, name: bytes) -> dict[str, Any]:
    kind = client.type(name).decode()
    content: Any
    if kind == "hash":
        content = [_text(part) for pair in sorted(client.hgetall(name).items()) for part in pair]
    elif kind == "zset":
        content = [[_text(member), score] for member, score in client.zrange(name, 0, -1, withscores=True)]
    elif kind == "set":
        content = [_text(member) for member in sorted(client.smembers(name))]
    elif kind == "list":
        content = [_text(member) for member in client.lrange(name, 0, -1)]
    else:
        content = _text(client.get(name))
    return {"key": _text(name), "type": kind, "content": content}


def _load_redis(folder: Path, name: str) -> str:
    from tests.servers import valkey

    client = valkey.behind().pipeline(transaction=False)
    for line in gzip.decompress((folder / "redis.jsonl.gz").read_bytes()).splitlines():
        said = json.loads(line)
        key, content = _bytes(said["key"]).replace(NAME.encode(), name.encode(), 1), said["content"]
        if said["type"] == "hash":
            client.hset(key, items=[*map(_bytes, content)])
        elif said["type"] == "zset":
            client.zadd(key, {_bytes(member): score for member, score in content})
        elif said["type"] == "set":
            client.sadd(key, *map(_bytes, content))
        elif said["type"] == "list":
            client.rpush(key, *map(_bytes, content))
        else:
            client.set(key, _bytes(content))
    client.execute()
    return f"{valkey.shared_url()}?prefix={name}"


def content(url: str) -> dict[str, object]:
    """Return what a Redis store holds, but for what each process leaves there, by key."""
    from tests.servers import valkey

    client, name = valkey.behind(), url.rpartition("=")[2]
    found = (_key(client, key) for key in client.scan_iter(match=f"{{{name}}}:*", count=1000))
    held = {one["key"].replace(name, "", 1): one["content"] for one in found}
    store = held["{}:store"]
    held["{}:store"] = dict(zip(store[::2], store[1::2], strict=True)).get("version")
    return {key: said for key, said in held.items() if not key.endswith((":writers", ":lineage", ":awaited"))}


def remove(kind: str, url: str) -> None:
    """Remove what was put back on a server."""
    name = url.rpartition("=")[2]
    if kind == "postgresql":
        from tests.servers.postgres import change

        change(f"DROP SCHEMA IF EXISTS {name} CASCADE")
    elif kind == "redis":
        from tests.servers.valkey import wipe

        wipe(name)


def _text(raw: bytes) -> str:
    try:
        text = raw.decode("ascii")
    except UnicodeDecodeError:
        return "base64:" + base64.b64encode(raw).decode()
    return text if not text.startswith("base64:") else "base64:" + base64.b64encode(raw).decode()


def _bytes(text: str) -> bytes:
    return base64.b64decode(text[7:]) if text.startswith("base64:") else text.encode()
