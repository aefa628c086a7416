"""The schema: exactly ours or refused, before anything in it can run; old versions are migrated."""

from __future__ import annotations

import resource
from pathlib import Path

import apsw
import pytest

from ninelives.core.errors import SchemaMismatch, StoreError, StoreUnavailable
from ninelives.core.model.commit import Outcome
from ninelives.core.model.run import RunQuery, RunRow
from ninelives.stores.sqlite import SqliteStore
from ninelives.stores.sqlite.files import schema
from ninelives.stores.sqlite.files.connection import connect, translated
from tests.contract.makers import AGENTS, append, new_run, new_session
from tests.integration.conftest import Opener, Starter
from tests.integration.roles import EXTRA

LAST = len(schema.migrations())
NEXT = LAST + 1
MORE = (*schema.migrations(), EXTRA)


def made(path: Path) -> None:
    """Make a store with two runs in it, and let go of it."""
    store = SqliteStore(path)
    store.create_runs([new_run("victim"), new_run("other")])
    store.close()


def changed(path: Path, *statements: str) -> None:
    """Change a database as another program would."""
    connection = connect(path)
    connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 0)
    for statement in statements:
        connection.execute(statement)
    connection.close()


def asked(path: Path, query: str) -> list[tuple[object, ...]]:
    """Ask the database without the store."""
    connection = connect(path)
    try:
        return connection.execute(query).fetchall()
    finally:
        connection.close()


@pytest.mark.parametrize(
    ("statement", "named"),
    [
        ("CREATE TRIGGER evil AFTER INSERT ON records BEGIN DELETE FROM runs; END", "trigger evil"),
        ("CREATE TRIGGER evil BEFORE UPDATE ON store BEGIN DELETE FROM runs; END", "trigger evil"),
        ("CREATE TRIGGER evil AFTER DELETE ON waiters BEGIN DELETE FROM runs; END", "trigger evil"),
        ("CREATE INDEX evil ON runs (lower(agent))", "index evil"),
        ("DROP INDEX runs_due", "index runs_due"),
        ("DROP TABLE waiters", "table waiters"),
        ("ALTER TABLE runs ADD COLUMN more TEXT", "table runs"),
        ("ALTER TABLE keys RENAME COLUMN action TO deed", "table keys"),
    ],
)
def test_a_schema_that_is_not_ours_is_refused(path: Path, statement: str, named: str) -> None:
    made(path)
    changed(path, statement)
    for _ in range(2):
        with pytest.raises(SchemaMismatch) as caught:
            SqliteStore(path)
        assert named in caught.value.what
        assert caught.value.remedy
    assert asked(path, "SELECT count(*) FROM runs") == [(2,)]


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TABLE _litestream_seq (id INTEGER PRIMARY KEY, seq INTEGER)",
        "CREATE TABLE theirs (x UNIQUE); CREATE INDEX other ON theirs (lower(x)); ANALYZE",
        "CREATE TABLE theirs (run TEXT REFERENCES runs (id) ON DELETE CASCADE)",
        "CREATE VIEW theirs AS SELECT * FROM runs",
        "CREATE VIRTUAL TABLE theirs USING fts5(x)",
        "CREATE TABLE a (x); CREATE TABLE b (x); CREATE TRIGGER c AFTER INSERT ON a BEGIN DELETE FROM b; END",
        "ANALYZE",
    ],
)
def test_what_a_guest_keeps_in_the_file_is_left_alone(path: Path, opened: Opener, statement: str) -> None:
    made(path)
    changed(path, statement)
    query = "SELECT type, name, sql FROM sqlite_schema ORDER BY 1, 2"
    before = asked(path, query)
    store = opened()
    store.create_runs([new_run("c")])
    assert store.verify() == []
    assert asked(path, query) == before


def test_an_index_on_our_tables_is_found_under_any_name(path: Path) -> None:
    made(path)
    changed(
        path,
        "CREATE TABLE guest (x)",
        "CREATE INDEX odd ON runs (agent)",
        "PRAGMA writable_schema = 1",
        "UPDATE sqlite_schema SET tbl_name = 'guest' WHERE name = 'odd'",
    )
    with pytest.raises(StoreError):
        SqliteStore(path)


def test_a_trigger_that_hides_under_a_name_of_sqlites_own_is_refused(path: Path, opened: Opener) -> None:
    made(path)
    changed(
        path,
        "PRAGMA writable_schema = 1",
        "INSERT INTO sqlite_schema (type, name, tbl_name, rootpage, sql) VALUES ('trigger', 'sqlite_evil',"
        " 'records', 0, 'CREATE TRIGGER sqlite_evil AFTER INSERT ON records BEGIN DELETE FROM runs; END')",
    )
    with pytest.raises(SchemaMismatch, match="sqlite_evil"):
        opened()
    assert asked(path, "SELECT count(*) FROM runs") == [(2,)]


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TRIGGER evil AFTER UPDATE ON store BEGIN DELETE FROM runs; END",
        "CREATE TRIGGER evil BEFORE INSERT ON records BEGIN DELETE FROM runs; END",
        "CREATE TABLE guest (x); CREATE TRIGGER evil AFTER INSERT ON guest BEGIN DELETE FROM runs; END",
    ],
)
def test_an_old_store_is_looked_at_before_it_is_migrated(path: Path, statement: str) -> None:
    made(path)
    changed(path, statement)
    with pytest.raises(SchemaMismatch, match="evil"):
        SqliteStore(path, migrations=MORE)
    assert asked(path, "SELECT count(*) FROM runs") == [(2,)]
    assert asked(path, "PRAGMA user_version") == [(LAST,)]


def test_a_newer_version_is_refused_and_left_alone(path: Path) -> None:
    SqliteStore(path, migrations=MORE).close()
    before = path.read_bytes()
    with pytest.raises(SchemaMismatch, match=rf"version {NEXT}; this Nine Lives knows 1 to {LAST}") as caught:
        SqliteStore(path)
    assert "Upgrade" in str(caught.value.remedy)
    assert path.read_bytes() == before


@pytest.mark.parametrize("version", [0, -1])
def test_a_version_that_never_was_is_refused_clearly(path: Path, version: int) -> None:
    made(path)
    changed(path, f"PRAGMA user_version = {version}")
    with pytest.raises(SchemaMismatch) as caught:
        SqliteStore(path)
    assert caught.value.remedy
    assert asked(path, "SELECT count(*) FROM runs") == [(2,)]


# Migrations --------------------------------------------------------------------------------------


def test_every_migration_is_numbered_without_a_gap() -> None:
    folder = Path(schema.__file__).parent / "migrations"
    names = sorted(file.name for file in folder.glob("*.sql"))
    assert [int(name[:4]) for name in names] == list(range(1, len(names) + 1))
    assert len(schema.migrations()) == len(names)


def test_an_old_store_is_migrated_when_it_is_opened_and_keeps_its_data(path: Path, opened: Opener) -> None:
    made(path)
    store = opened(migrations=MORE)
    assert store.migrate() == (LAST, NEXT)
    assert asked(path, "SELECT note FROM extra") == [("migrated",)]
    assert {run.id for run in store.list_runs(_all())} == {"victim", "other"}
    store.create_runs([new_run("new")])
    assert store.verify() == []
    assert opened(migrations=MORE).migrate() == (NEXT, NEXT)


def test_a_store_made_at_a_version_is_as_one_migrated_to_it(path: Path, tmp_path: Path) -> None:
    made(path)
    SqliteStore(path, migrations=MORE).close()
    SqliteStore(tmp_path / "new.db", migrations=MORE).close()
    query = "SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY 1, 2"
    assert asked(path, query) == asked(tmp_path / "new.db", query)


def test_a_migration_that_fails_changes_nothing(path: Path, opened: Opener) -> None:
    made(path)
    half = "CREATE TABLE half (x); INSERT INTO nowhere VALUES (1)"
    for _ in range(2):
        with pytest.raises(StoreError):
            SqliteStore(path, migrations=(*schema.migrations(), half))
    assert asked(path, "PRAGMA user_version") == [(LAST,)]
    store = opened()
    assert store.verify() == []
    assert store.read_run("victim") is not None


def test_a_running_process_of_the_old_version_stops_at_its_next_write(path: Path, opened: Opener) -> None:
    old = opened()
    old.register_session(new_session(lease_ms=1_000_000))
    old.create_runs([new_run("a"), new_run("b")])
    (first, second) = old.claim_runs("s1", 2, AGENTS).runs
    new = opened(migrations=MORE)
    assert new.migrate() == (LAST, NEXT)
    for attempt in (
        lambda: old.commit([append(first, b"late")]),
        lambda: old.commit([append(second, b"late")]),
        lambda: old.create_runs([new_run("c")]),
        lambda: old.renew_session("s1"),
    ):
        with pytest.raises(SchemaMismatch, match="another schema version") as caught:
            attempt()
        assert caught.value.remedy
    assert old.read_run("c") is None
    row = new.read_run("a")
    assert isinstance(row, RunRow)
    assert row.length == 1
    (verdict,) = new.commit([append(first, b"in time")])
    assert verdict.outcome is Outcome.COMMITTED


def test_two_processes_that_open_an_old_store_at_once_migrate_it_once(
    path: Path, started: Starter, opened: Opener
) -> None:
    made(path)
    both = [started("open_once") for _ in range(2)]
    assert [child.read() for child in both] == ["ready", "ready"]
    for child in both:
        child.tell()
    assert sorted(child.read() for child in both) == [f"{LAST} {NEXT}", f"{NEXT} {NEXT}"]
    assert [child.wait() for child in both] == [0, 0]
    assert asked(path, "SELECT count(*) FROM extra") == [(1,)]
    assert len(opened(migrations=MORE).list_runs(_all())) == 4


def test_two_processes_that_make_a_store_at_once_make_one(
    path: Path, started: Starter, opened: Opener
) -> None:
    both = [started("open_once") for _ in range(2)]
    assert [child.read() for child in both] == ["ready", "ready"]
    for child in both:
        child.tell()
    assert [child.read() for child in both] == [f"{NEXT} {NEXT}"] * 2
    assert [child.wait() for child in both] == [0, 0]
    assert len(opened(migrations=MORE).list_runs(_all())) == 2


def _all() -> RunQuery:
    return RunQuery(limit=1000)


def test_a_migration_on_a_full_disk_says_so_and_leaves_the_old_version(path: Path, opened: Opener) -> None:
    made(path)
    connection = connect(path)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        connection.execute("BEGIN IMMEDIATE; ROLLBACK")  # the log and its index are there
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
        with pytest.raises(StoreUnavailable, match=r"full|I/O") as caught, translated(connection):
            schema.migrate(connection, MORE)
        assert "Free disk space" in str(caught.value)
        assert "Nothing was written" in str(caught.value.remedy)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        connection.close()
    assert opened().read_run("victim") is not None
