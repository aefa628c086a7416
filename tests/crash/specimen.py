"""Specimens: stores in the middle of their lives, to be damaged.

`torn` was killed: part of it is in the database, part in the log. `closed` has no log: all is in the
database. `backup` is the database file alone, from earlier.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import apsw

from ninelives.stores.sqlite.files.connection import connect
from tests.crash.campaign import CHECK, LIVE
from tests.crash.forkserver import ForkServer
from tests.crash.stores import scratch

SEED, RUNS = 3, 4


def prepare(server: ForkServer, home: Path) -> dict[str, Path]:
    """Make the specimens in a directory; returns where each is."""
    with scratch() as whole:
        calls = len(server.run(LIVE, home=str(whole), seed=SEED, runs=RUNS).result())
    torn, closed, backup = home / "torn", home / "closed", home / "backup"
    for made in (torn, closed, backup):
        made.mkdir(mode=0o700)

    def live_until(part: float) -> None:
        point = {"call": int(calls * part), "side": "after"}
        death = server.run(LIVE, home=str(torn), seed=SEED, runs=RUNS, point=point)
        assert death.was_killed, death

    live_until(0.45)
    empty_log(torn / "runs.db")
    shutil.copyfile(torn / "runs.db", backup / "runs.db")
    (backup / "runs.db").chmod(0o600)
    live_until(0.3)
    for name in ("runs.db", "runs.db-wal", "runs.db-anchor", "ledger"):
        shutil.copyfile(torn / name, closed / name)
        (closed / name).chmod(0o600)
    empty_log(closed / "runs.db")
    assert server.run(CHECK, home=str(closed)).result() == []
    return {"torn": torn, "closed": closed, "backup": backup}


def empty_log(path: Path) -> None:
    """Move all of a log into its database, as the checkpointer does in time."""
    connection = connect(path)
    connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    connection.close()
