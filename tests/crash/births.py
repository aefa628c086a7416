"""The rare moments of a file: it is made, brought to a new schema, restored. All are killed anywhere.

After each kill the next process must find a store that opens, with all that was acknowledged; a store
that was half made is made again, one that was half migrated or restored is so again.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random

from ninelives.core.model.run import RunQuery
from ninelives.stores.sqlite import SqliteStore
from ninelives.stores.sqlite.files import schema
from tests.crash import mutants, syscalls
from tests.crash.campaign import LIVE, Told
from tests.crash.damage import copied
from tests.crash.forkserver import ForkServer
from tests.crash.stores import scratch

EXTRA = (
    "CREATE TABLE notes (place INTEGER PRIMARY KEY, text TEXT NOT NULL) STRICT;"
    "INSERT INTO notes (text) SELECT hex(randomblob(900)) FROM records;"
    "CREATE INDEX notes_text ON notes (text);",
    "ALTER TABLE runs ADD COLUMN mood TEXT NOT NULL DEFAULT 'calm'; UPDATE runs SET mood = id;",
)
"""Schema steps that do not exist yet: the store of a later version."""

Campaign = Callable[..., tuple[int, list[str]]]
OPEN, UPGRADE = "tests.crash.births:open_here", "tests.crash.births:upgrade"
RESTORE = "tests.crash.births:restore_here"


def open_here(home: str, *, mutant: str = "") -> None:
    """Open the store in `home`, making it if there is none."""
    mutants.plant(mutant)
    SqliteStore(Path(home) / "runs.db").close()


def upgrade(home: str, *, mutant: str = "") -> list[int]:
    """Open the store in `home` with a later version's schema; returns the versions before and after."""
    mutants.plant(mutant)
    store = SqliteStore(Path(home) / "runs.db", migrations=(*schema.migrations(), *EXTRA))
    versions = store.migrate()
    faults = store.verify()
    if faults:
        raise AssertionError(faults)
    store.close()
    return list(versions)


def kill_creation(
    server: ForkServer,
    *,
    every: int = 1,
    mutant: str = "",
    only: str = "",
    told: Told = lambda _done, _all: None,
) -> tuple[int, list[str]]:
    """Kill the making of a store at its system calls; returns how many kills, and what went wrong."""
    kills, violations = 0, []
    with scratch() as home:
        counts = syscalls.count_calls(server, OPEN, home=str(home), mutant=mutant)
    points = _points(counts, every, only)
    for done, (call, when) in enumerate(points, 1):
        told(done, len(points))
        with scratch() as home:
            kills += syscalls.kill_at(server, OPEN, call, when, home=str(home), mutant=mutant)
            death = server.run(LIVE, home=str(home), seed=1, runs=1)
            if death.code != 0:
                violations.append(f"made again after a kill at {call} {when}: {death.stderr.strip()[-300:]}")
    return kills, violations


def kill_migration(
    server: ForkServer,
    *,
    every: int = 1,
    mutant: str = "",
    only: str = "",
    told: Told = lambda _done, _all: None,
) -> tuple[int, list[str]]:
    """Kill the migration of a store at its system calls; returns how many kills, and what went wrong."""
    with scratch() as old:
        server.run(LIVE, home=str(old), seed=1, runs=1).result()
        return _kill_migration_of(old, server, every, mutant, only, told)


def _kill_migration_of(
    old: Path, server: ForkServer, every: int, mutant: str, only: str, told: Told
) -> tuple[int, list[str]]:
    kills, violations = 0, []
    with scratch() as home:
        shutil.copytree(old, home, dirs_exist_ok=True)
        counts = syscalls.count_calls(server, UPGRADE, home=str(home), mutant=mutant)
    points = _points(counts, every, only)
    for done, (call, when) in enumerate(points, 1):
        told(done, len(points))
        with scratch() as home:
            shutil.copytree(old, home, dirs_exist_ok=True)
            kills += syscalls.kill_at(server, UPGRADE, call, when, home=str(home), mutant=mutant)
            again = server.run(UPGRADE, home=str(home))
            if again.code != 0:
                violations.append(
                    f"migrated again after a kill at {call} {when}: {again.stderr.strip()[-300:]}"
                )
            elif again.answer[1] != len(schema.migrations()) + len(EXTRA):
                violations.append(f"after a kill at {call} {when} the version is {again.answer}")
            else:
                violations += server.run("tests.crash.births:check_upgraded", home=str(home)).result()
    return kills, violations


def check_upgraded(home: str) -> list[str]:
    """Judge an upgraded store by its ledger; a task of the fork server."""
    from tests.crash import judge
    from tests.crash.ledger import read

    store = SqliteStore(Path(home) / "runs.db", migrations=(*schema.migrations(), *EXTRA))
    try:
        return judge.Judge(store, list(read(Path(home) / "ledger"))).judge()
    finally:
        store.close()


def restore_here(home: str) -> list[str]:
    """Back up the store in `home`, restore it, and back it up again; returns who is paused."""
    from ninelives.stores.clock import SystemClock
    from ninelives.stores.sqlite.files.backups import restore

    database, first = Path(home) / "runs.db", Path(home) / "first.db"
    if not first.exists():
        store = SqliteStore(database)
        store.backup(first)
        store.close()
    restore(first, database, SystemClock(), replaces=True)
    store = SqliteStore(database)
    try:
        store.backup(Path(home) / "second.db")
        faults = store.verify()
        if faults:
            raise AssertionError(faults)
        return [run.id for run in store.list_runs(RunQuery(limit=1000)) if run.paused]
    finally:
        store.close()


def kill_restore(
    server: ForkServer, *, every: int = 1, told: Told = lambda _done, _all: None
) -> tuple[int, list[str]]:
    """Kill a backup and a restore at their system calls; returns how many kills, and what went wrong."""
    kills, violations = 0, []
    with scratch() as old:
        death = server.run(LIVE, home=str(old), seed=1, runs=2, point={"call": 40, "side": "after"})
        assert death.was_killed, death
        with scratch() as home:
            copied(old, home)
            counts = syscalls.count_calls(server, RESTORE, home=str(home))
        with scratch() as home:
            copied(old, home)
            wanted = server.run(RESTORE, home=str(home)).result()
        points = _points(counts, every, "")
        for done, (call, when) in enumerate(points, 1):
            told(done, len(points))
            with scratch() as home:
                copied(old, home)
                kills += syscalls.kill_at(server, RESTORE, call, when, home=str(home))
                again = server.run(RESTORE, home=str(home))
                if again.code != 0:
                    violations.append(f"again after a kill at {call} {when}: {again.stderr.strip()[-300:]}")
                elif again.answer != wanted:
                    violations.append(f"after a kill at {call} {when} are paused: {again.answer}")
    return kills, violations


def _points(counts: dict[str, int], every: int, only: str) -> list[tuple[str, int]]:
    """Return all (call, n), or a spread of them in which each kind of call occurs."""
    points: list[tuple[str, int]] = []
    for call, times in sorted(counts.items()):
        if only and call != only:
            continue
        step = every if times > 4 else 1
        offset = Random(call).randrange(min(step, times))
        points += [(call, when) for when in range(1 + offset, times + 1, step)]
    return points
