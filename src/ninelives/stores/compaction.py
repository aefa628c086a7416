"""Give disk space back that `prune` has freed.

SQLite reuses free pages but keeps its file as large as it ever was; the file is written again without them.
That needs the store for itself. If we die here: SQLite rolls back, and the old file is whole.
PostgreSQL's tables are vacuumed while they are in use. Redis frees memory by itself.
"""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from ninelives.core.errors import UsageError
from ninelives.stores import url as urls


class Compacted(Struct, frozen=True):
    """The size of a store before and after, and a sentence about it."""

    before: int
    after: int
    note: str


def compact(url: str) -> Compacted:
    """Make a store as small as its contents. Raises UsageError while a process has a SQLite store open."""
    path = urls.path_of(url)
    if path is not None:
        return _sqlite(Path(path))
    if url.startswith(("postgresql:", "postgres:")):
        return _postgres(url)
    if url == "memory:":
        raise UsageError("memory: has no disk space to give back", remedy="Name a store on disk")
    return Compacted(0, 0, "nothing to do: Redis frees memory as soon as something is pruned")


def _sqlite(path: Path) -> Compacted:
    from ninelives.stores.sqlite.files import paths, structure
    from ninelives.stores.sqlite.files.connection import APPLICATION_ID, connect, translated
    from ninelives.stores.sqlite.files.database import require_closed
    from ninelives.stores.sqlite.files.write_queue import held

    where = paths.locate(path)
    with held(where.live), translated(path=where.database):
        # A worker would wait for the whole copy, and lose its lease.
        require_closed(where.database)
        paths.inspect(where, APPLICATION_ID)
        before = _size(where.database)
        connection = connect(where.database)
        try:
            # A damaged file is not written again: what a broken index hides would be lost.
            structure.require_sound(connection, "runs", "records", "keys", "blob_runs")
            connection.execute("VACUUM")
            # CRASH: the new pages are in the log; the next connection copies them into the file.
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        finally:
            connection.close()
        return Compacted(before, _size(where.database), "the file was written again without its free pages")


def _size(database: Path) -> int:
    files = (database, Path(f"{database}-wal"))
    return sum(file.stat().st_size for file in files if file.exists())


def _postgres(url: str) -> Compacted:
    from ninelives.stores.postgres.server.vacuum import vacuum

    before, after = vacuum(url)
    return Compacted(before, after, "its tables were vacuumed; the server uses the free space again")
