"""The limits: what SQLite itself does on this disk, with the same durability and nothing around it."""

from __future__ import annotations

import os
import time
from pathlib import Path

import apsw

PAYLOAD_BYTES = 1024


def one_row_commits(folder: Path, count: int) -> float:
    """Return commits per second: one row of 1 KiB each, WAL, synchronous=FULL, everything else default."""
    path = folder / f"raw-{os.urandom(4).hex()}.db"
    connection = apsw.Connection(str(path))
    connection.pragma("journal_mode", "wal")
    connection.pragma("synchronous", "full")
    assert (connection.pragma("journal_mode"), connection.pragma("synchronous")) == ("wal", 2)
    connection.execute("CREATE TABLE rows (id INTEGER PRIMARY KEY, body BLOB)")
    cursor = connection.cursor()
    bodies = [os.urandom(PAYLOAD_BYTES) for _ in range(64)]
    began = time.perf_counter()
    for number in range(count):
        cursor.execute("INSERT INTO rows (body) VALUES (?)", (bodies[number % 64],))
    elapsed = time.perf_counter() - began
    connection.close()
    path.unlink()
    return count / elapsed
