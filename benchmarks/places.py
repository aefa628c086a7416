"""Where stores are measured: each place gives fresh stores, and the raw limit of the same disk or server."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

from tests.servers.postgres import PostgresServer
from tests.servers.valkey import ValkeyServer

from benchmarks import raw
from benchmarks.servers import RestatePlace, TemporalPlace


class Place(Protocol):
    """A disk or a server."""

    name: str
    title: str

    def fresh(self) -> str:
        """Return the URL of a store that nobody has used."""

    def limit(self, count: int) -> float:
        """Return raw one-row commits per second, here and now."""

    def size(self, url: str) -> int:
        """Return the bytes that a store takes, once nobody has it open."""

    def drop(self, url: str) -> None:
        """Remove a store."""

    def close(self) -> None:
        """Remove what was made here."""


class SqlitePlace:
    """A folder."""

    name = "sqlite"
    title = "SQLite (ours and the limit: WAL, synchronous=FULL; peers as they set it, synced)"

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def fresh(self) -> str:
        """Return the URL of a file that does not exist yet, in a folder of its own."""
        home = self._folder / os.urandom(4).hex()
        home.mkdir()
        return f"sqlite:///{home / 'runs.db'}"

    def limit(self, count: int) -> float:
        """Measure the disk."""
        return raw.one_row_commits(self._folder, count)

    def size(self, url: str) -> int:
        """Return the size of the database file."""
        return self._path(url).stat().st_size

    def drop(self, url: str) -> None:
        """Remove the files; the folder is left to who made it."""
        for path in self._path(url).parent.rglob("*"):
            if path.is_file() or path.is_socket():
                path.unlink()

    def close(self) -> None:
        """Leave everything to who removes the folder."""

    def _path(self, url: str) -> Path:
        return Path(urlsplit(url).path)


class PostgresPlace:
    """A server of our own whose data is in a folder, with real syncs; or the one that was named.

    `NINELIVES_BENCH_POSTGRES` names another server (a URL whose user may create databases).
    """

    name = "postgresql"
    title = "PostgreSQL 16, fsync and synchronous_commit on"

    def __init__(self, folder: Path) -> None:
        self._server: PostgresServer | None = None
        given = os.environ.get("NINELIVES_BENCH_POSTGRES")
        if given is None:
            folder.chmod(0o755)  # the server runs as somebody else
            self._server = PostgresServer(folder)
        self.url = given or (self._server.url if self._server else "")
        self._empty: dict[str, int] = {}

    def fresh(self) -> str:
        """Return the URL of an empty database."""
        name = f"bench_{os.urandom(4).hex()}"
        raw.create_database(self.url, name)
        url = urlsplit(self.url)._replace(path=f"/{name}").geturl()
        self._empty[url] = raw.database_size(url)
        return url

    def limit(self, count: int) -> float:
        """Measure the server."""
        return raw.postgres_commits(self.url, count)

    def size(self, url: str) -> int:
        """Return by how much the database has grown."""
        return raw.database_size(url) - self._empty[url]

    def drop(self, url: str) -> None:
        """Remove the database and who is still connected to it."""
        raw.drop_database(self.url, urlsplit(url).path[1:])
        del self._empty[url]

    def close(self) -> None:
        """Stop our server, or leave another one as it was."""
        if self._server is not None:
            self._server.remove()
            return
        for url in list(self._empty):
            self.drop(url)


class RedisPlace:
    """A folder in which a Valkey server is started for every store, and one for the limit."""

    name = "redis"
    title = "Valkey 9, appendfsync always"

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._limit = ValkeyServer(folder)
        self._servers: dict[str, ValkeyServer] = {}

    def fresh(self) -> str:
        """Start a server."""
        server = ValkeyServer(self._folder)
        self._servers[server.url] = server
        return server.url

    def limit(self, count: int) -> float:
        """Measure a server that nobody else uses."""
        return raw.redis_commits(self._limit.url, count)

    def size(self, url: str) -> int:
        """Return the size of its log."""
        return sum(path.stat().st_size for path in self._servers[url].data.rglob("*") if path.is_file())

    def drop(self, url: str) -> None:
        """Kill the server and remove its log."""
        self._servers.pop(url).remove()

    def close(self) -> None:
        """Kill all of them."""
        for server in (self._limit, *self._servers.values()):
            server.remove()


_PLACES = (SqlitePlace, PostgresPlace, RedisPlace, RestatePlace, TemporalPlace)
PLACES: dict[str, Callable[[Path], Place]] = {place.name: place for place in _PLACES}
TITLES = {place.name: place.title for place in _PLACES}
