"""Where stores are measured: each place gives fresh stores, and the raw limit of the same disk or server."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from tests.servers.postgres import PostgresServer

from benchmarks import raw


class Place(Protocol):
    """A disk or a server."""

    name: str

    def fresh(self) -> str:
        """Return the URL of a store that nobody has used."""

    def limit(self, count: int) -> float:
        """Return raw one-row commits per second, here and now."""

    def close(self) -> None:
        """Remove what was made here."""


class SqlitePlace:
    """A folder."""

    name = "sqlite"

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def fresh(self) -> str:
        """Return the URL of a file that does not exist yet."""
        return f"sqlite:///{self._folder / os.urandom(4).hex() / 'runs.db'}"

    def limit(self, count: int) -> float:
        """Measure the disk."""
        return raw.one_row_commits(self._folder, count)

    def close(self) -> None:
        """Leave everything to who removes the folder."""


class PostgresPlace:
    """A server of our own whose data is in a folder, with real syncs; or the one that was named.

    `NINELIVES_BENCH_POSTGRES` names another server (a URL without a schema).
    """

    name = "postgresql"

    def __init__(self, folder: Path) -> None:
        self._server: PostgresServer | None = None
        given = os.environ.get("NINELIVES_BENCH_POSTGRES")
        if given is None:
            folder.chmod(0o755)  # the server runs as somebody else
            self._server = PostgresServer(folder)
        self.url = given or (self._server.url if self._server else "")
        self._schemas: list[str] = []

    def fresh(self) -> str:
        """Return the URL of a schema that does not exist yet."""
        self._schemas.append(f"bench_{os.urandom(4).hex()}")
        return f"{self.url}?schema={self._schemas[-1]}"

    def limit(self, count: int) -> float:
        """Measure the server."""
        return raw.postgres_commits(self.url, count)

    def close(self) -> None:
        """Stop our server, or leave another one as it was."""
        if self._server is not None:
            self._server.remove()
            return
        with suppress(OSError):
            raw.drop_schemas(self.url, self._schemas)


PLACES = {place.name: place for place in (SqlitePlace, PostgresPlace)}
