"""Stock tools on the store's file: between two lives, right after a SIGKILL, and beside a life that goes on.

Each tool is what people and services do with any SQLite file, with another SQLite than ours (the one that
comes with Python): look, back up, vacuum, empty the log, keep tables of their own, copy the files. None is
told that the file is ours, and nobody repairs anything afterwards.
"""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from random import Random

NAMES = ("runs.db", "runs.db-wal", "runs.db-anchor")
_ROW_COUNTS = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"


def _opened(home: Path) -> closing[sqlite3.Connection]:
    return closing(sqlite3.connect(home / "runs.db", isolation_level=None, timeout=0.2))


def look(home: Path) -> None:
    """Read every table, as an IDE does."""
    with _opened(home) as tool:
        for (name,) in tool.execute(_ROW_COUNTS).fetchall():
            tool.execute(f"SELECT * FROM {name}").fetchall()


def look_only(home: Path) -> None:
    """Read through a connection that may not write."""
    with closing(sqlite3.connect(f"file:{home / 'runs.db'}?mode=ro", uri=True, timeout=0.2)) as tool:
        tool.execute("SELECT count(*) FROM runs").fetchall()


def take_the_lock(home: Path) -> None:
    """Begin to write, and change one's mind."""
    with _opened(home) as tool:
        tool.execute("BEGIN IMMEDIATE")
        tool.execute("ROLLBACK")


def be_a_guest(home: Path) -> None:
    """Keep tables of one's own in the file, and write to them, as Litestream does."""
    with _opened(home) as tool:
        tool.execute("CREATE TABLE IF NOT EXISTS _litestream_seq (id INTEGER PRIMARY KEY, seq INTEGER)")
        tool.execute("CREATE TABLE IF NOT EXISTS _litestream_lock (id INTEGER)")
        tool.execute("INSERT INTO _litestream_seq VALUES (1, 1) ON CONFLICT (id) DO UPDATE SET seq = seq + 1")


def replicate(home: Path) -> None:
    """Hold a reader open, write, and copy the log into the database, as Litestream does."""
    be_a_guest(home)
    with _opened(home) as reader, _opened(home) as tool:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM _litestream_seq").fetchall()
        tool.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        reader.execute("ROLLBACK")
        be_a_guest(home)
        tool.execute("PRAGMA wal_checkpoint(RESTART)").fetchall()


def empty_the_log(home: Path) -> None:
    """Copy the whole log into the database and cut it to nothing."""
    with _opened(home) as tool:
        tool.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


def check(home: Path) -> None:
    """Let SQLite check the file."""
    with _opened(home) as tool:
        assert tool.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def analyze(home: Path) -> None:
    """Gather statistics, which change how SQLite answers."""
    with _opened(home) as tool:
        tool.execute("ANALYZE")
        tool.execute("PRAGMA optimize").fetchall()


def vacuum(home: Path) -> None:
    """Rewrite the file in its place."""
    with _opened(home) as tool:
        tool.execute("VACUUM")


def leave_the_log(home: Path) -> None:
    """Take the file out of WAL mode, with other pages."""
    with _opened(home) as tool:
        tool.execute("PRAGMA journal_mode = delete").fetchall()
        tool.execute("PRAGMA page_size = 2048")
        tool.execute("VACUUM")


def back_up(home: Path) -> None:
    """Copy the database through the backup API."""
    with _opened(home) as tool, closing(sqlite3.connect(_aside(home))) as copy:
        tool.backup(copy, pages=50)


def vacuum_into(home: Path) -> None:
    """Write a compact copy."""
    with _opened(home) as tool:
        tool.execute("VACUUM INTO ?", (str(_aside(home)),))


def restore_back_up(home: Path) -> None:
    """Go on from a copy of the database alone: neither its log nor its anchor."""
    back_up(home)
    _put_in_place(home)


def restore_vacuumed(home: Path) -> None:
    """Go on from a compact copy."""
    vacuum_into(home)
    _put_in_place(home)


def copy_files(home: Path) -> None:
    """Copy the files as they lie there, and go on from the copies."""
    for name in NAMES:
        if (home / name).exists():
            shutil.copyfile(home / name, home / f"copy-of-{name}")
    (home / "runs.db-shm").unlink(missing_ok=True)
    for name in NAMES:
        (home / name).unlink(missing_ok=True)
        if (home / f"copy-of-{name}").exists():
            (home / f"copy-of-{name}").rename(home / name)


def _aside(home: Path) -> Path:
    aside = home / "aside.db"
    aside.unlink(missing_ok=True)
    return aside


def _put_in_place(home: Path) -> None:
    for name in (*NAMES, "runs.db-shm"):
        (home / name).unlink(missing_ok=True)
    (home / "aside.db").rename(home / "runs.db")


BESIDE: tuple[Callable[[Path], None], ...] = (
    look,
    look_only,
    take_the_lock,
    be_a_guest,
    replicate,
    empty_the_log,
    check,
    back_up,
    vacuum_into,
)
"""What may be done while workers run."""
BETWEEN: tuple[Callable[[Path], None], ...] = (
    *BESIDE,
    analyze,
    vacuum,
    leave_the_log,
    restore_back_up,
    restore_vacuumed,
    copy_files,
)
"""What may be done while nobody runs."""


def use(home: str, number: int) -> str:
    """Use a tool on a store that nobody has open; a task of the fork server. Returns its name."""
    tool = BETWEEN[number % len(BETWEEN)]
    tool(Path(home))
    return tool.__name__


@contextmanager
def company(home: Path, seed: int) -> Iterator[None]:
    """Use tools beside whatever else is done with a store."""
    command = [sys.executable, "-m", "tests.crash.stock", str(home), str(seed)]
    tools = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        yield
        if tools.poll() is not None:
            raise AssertionError(f"a tool failed: {tools.stderr.read() if tools.stderr else ''}")
    finally:
        tools.kill()
        tools.communicate()


def _use_for_ever(home: Path, rng: Random) -> None:
    while True:
        if not (home / "runs.db").exists():
            time.sleep(0.001)  # a tool that opens what is not there would make it
            continue
        with suppress(sqlite3.OperationalError):  # busy: a tool waits for its turn like everybody
            rng.choice(BESIDE)(home)


if __name__ == "__main__":
    _use_for_ever(Path(sys.argv[1]), Random(sys.argv[2]))
